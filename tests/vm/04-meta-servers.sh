#!/bin/bash
# Two meta servers side by side: nodes publish at both, one of them may go and
# come back, and without any of them look-ups fail within a bounded time.
# vm: --no-module --nodes 3
# checks: 13
. "$(dirname "$0")/lib.sh"

readonly A=10.77.0.2:7471 B=10.77.0.3:7471

# start NODE ADDRESS: sets SERVER. `ip` becomes the server, so that its process
# is the one to kill.
start() {
  ip netns exec "n$1" weft-meta --listen "$2" >"/tmp/meta.$1" 2>&1 &
  SERVER=$!
  if within 10 grep -q '^weft-meta ready' "/tmp/meta.$1"; then
    ok "a server listens on $2"
  else
    not_ok "a server listens on $2" "$(cat "/tmp/meta.$1")"
  fi
}
crash() {
  kill -KILL "$1"
  wait "$1" 2>/dev/null
  return 0
}
lookup() { timeout "$(seconds 20)" weftctl lookup 10.77.0.1; }
# Each attempt has to end by itself; sooner or later there is no server any more.
no_lookup() { refuses 1 "no meta server is connected" weftctl lookup 10.77.0.1; }

start 1 "$A"
a=$SERVER
start 2 "$B"
b=$SERVER
check "the module loads with two servers" insmod "$WEFT_KO" "meta=$A,$B"
check "a look-up works" within 20 lookup

crash "$a"
check "it works without the first server" within 20 lookup
start 1 "$A"
a=$SERVER
crash "$b"
check "and it alone has the records" within 60 lookup

crash "$a"
check "without any server a look-up fails in time" within 30 no_lookup
check "and so does the next one" no_lookup
start 1 "$A"
a=$SERVER
check "and look-ups work again" within 60 lookup
kill -TERM "$a"
wait "$a"
is "SIGTERM ends a server with status" $? 0
check "the module unloads without its servers" timeout "$(seconds 60)" rmmod weft
done_testing

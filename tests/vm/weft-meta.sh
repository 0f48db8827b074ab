#!/bin/bash
# weft-meta as nodes and others see it: what is published is found by READ, only
# the right incarnation withdraws, only the node itself publishes, noise, floods, crowds
# and a full table do no harm, signals and errors are answered as the manual says.
# vm: --no-module --nodes 2 --timeout 600
# checks: 81
. "$(dirname "$0")/lib.sh"

HERE=$(dirname "$0")
# As in meta-server: connections of one address from unreserved and reserved ports.
readonly READERS_PER_PEER=16 NODE_PER_PEER=32
readonly LOG=$VM_RUN/meta.log OUT=$VM_RUN/meta.out NODE=::ffff:10.77.0.1

# start ARG...: starts a server and waits until it is ready.
start() {
  : >"$OUT"
  weft-meta "$@" >"$OUT" 2>"$LOG" &
  SERVER=$!
  within 10 grep -q '^weft-meta ready' "$OUT" && return
  cat "$LOG"
  return 1
}

# stop SIGNAL: ends the server, and keeps its exit status. (Not for `check`: only
# the shell that started the server may wait for it.)
stop() {
  kill "-$1" "$SERVER"
  wait "$SERVER"
  STATUS=$?
}

# lookup_is GID WANTED [CMD...]: waits a while for a record to be as wanted.
lookup_is() {
  local tries gid=$1 wanted=$2 got
  shift 2
  for ((tries = 0; tries < 40; tries++)); do
    got=$("$@" weft-probe lookup "$gid") || return 1
    [ "$got" != "$wanted" ] || return 0
    sleep 0.05
  done
  echo "$gid: got $got, wanted $wanted"
  return 1
}

# log_has COUNT TEXT: the server's log has so many lines with TEXT.
log_has() { [ "$(grep -c -- "$2" "$LOG")" = "$1" ]; }

# said_more_than N: whether the server has said more than N lines.
said_more_than() { [ "$(wc -l <"$OUT")" -gt "$1" ]; }

# report: what the server answers to SIGUSR1.
report() {
  local before
  before=$(wc -l <"$OUT")
  kill -USR1 "$SERVER"
  within 10 said_more_than "$before" && tail -n 1 "$OUT"
}

# reports TEXT: it answers so.
reports() {
  local got
  got=$(report)
  [ "$got" = "$1" ] || { echo "it said ${got:-nothing}"; return 1; }
}

readonly AS_USER=(setpriv --reuid 65534 --regid 65534 --clear-groups)

# connections_are COUNT: the server has so many.
connections_are() { [[ "$(report)" = *" connections=$1" ]]; }

cpu_ticks() { awk '{ print $14 + $15 }' "/proc/$SERVER/stat"; }

start --capacity 4096
is "one line says that it is ready" "$(grep -c '^weft-meta ready listen=0.0.0.0:7471 capacity=4096 table_bytes=[0-9]* bytes_per_record=' "$OUT")" 1

check "a record is published" weft-probe publish "$NODE" 7
check "another node finds it, after its connection is gone" lookup_is "$NODE" 7 ip netns exec n1
check "a node that nobody published is absent" lookup_is 10.9.9.9 absent
check "a newer incarnation replaces it" weft-probe publish "$NODE" 8
check "the newer one is found" lookup_is "$NODE" 8
check "an older incarnation may withdraw" weft-probe withdraw "$NODE" 7
check "which does nothing" lookup_is "$NODE" 8

# from_n1 ARG...: what another node tries to do with this one's record.
from_n1() { ip netns exec n1 weft-probe --server 10.77.0.1:7471 "$@"; }
check "another node may send this one's record" from_n1 publish "$NODE" 66
check "and its withdrawal" from_n1 withdraw "$NODE" 8
check "the server says that it ignores them" within 20 log_has 2 "another node's record was ignored"
check "which it does" lookup_is "$NODE" 8
check "the other node publishes its own" from_n1 publish 10.77.0.2 3
check "which is found" lookup_is 10.77.0.2 3
check "and withdraws it" from_n1 withdraw 10.77.0.2 3
check "which is gone" lookup_is 10.77.0.2 absent

# given a user of this host, who may use /dev/infiniband, then it can read, not publish
check "a user gets no reserved port" refuses 1 "Permission denied" "${AS_USER[@]}" weft-probe publish "$NODE" 66
check "a user looks the record up" lookup_is "$NODE" 8 "${AS_USER[@]}"
check "a user sends its node's record from another port" "${AS_USER[@]}" weft-probe --any-port publish "$NODE" 66
check "and its withdrawal" "${AS_USER[@]}" weft-probe --any-port withdraw "$NODE" 8
check "the server says that it ignores them" within 20 log_has 2 "from an unreserved port was ignored"
check "which it does" lookup_is "$NODE" 8

# given who has not received the server's answer, then it does not publish
check "its record without the connection's token" weft-probe --no-token publish "$NODE" 66
check "and its withdrawal" weft-probe --no-token withdraw "$NODE" 8
check "the server says that it ignores these" within 20 log_has 2 "without the connection's token was ignored"
check "which it does" lookup_is "$NODE" 8

check "the stored incarnation withdraws" weft-probe withdraw "$NODE" 8
check "the record is gone" lookup_is "$NODE" absent

check "noise is taken" weft-probe noise 56
check "short noise is taken" weft-probe noise 3
check "who sends nothing else is disconnected" refuses 1 "Send failed" weft-probe noise 56 3000
# The log may have twenty lines of it in ten seconds.
allowed() { echo $((20 * ((SECONDS - start) / 10 + 2))); }
# new_log: what was logged since the flood began.
new_log() { tail -n +"$((before + 1))" "$LOG"; }
logged() { new_log | grep -c 'malformed message'; }
# told_of N: so many messages were logged, or counted.
told_of() {
  local more
  more=$(new_log | sed -n '/more of the same was not logged/s/.*subject=Messages.* count=\([0-9]*\).*/\1/p' | paste -sd+)
  [ $(($(logged) + ${more:-0})) -ge "$1" ]
}
# flood: fifteen senders at once. Those that end well have sent all of theirs.
flood() {
  local n senders=()
  for ((n = 0; n < 15; n++)); do
    "${AS_USER[@]}" weft-probe --any-port noise 56 4 &
    senders+=($!)
  done
  for n in "${senders[@]}"; do if wait "$n"; then sent=$((sent + 4)); fi; done
}
before=$(wc -l <"$LOG") start=$SECONDS sent=0
limit=$(allowed)
for ((round = 0; round < 30 && sent <= 2 * limit; round++)); do
  flood
  limit=$(allowed)
done
check "a flood of it is taken" test "$sent" -gt $((2 * limit))
at_most "few lines of it are logged" "$(logged)" "$(allowed)"
# The server need not have counted all messages of a sender that is gone.
check "it is told how many more there were" within 20 told_of $((sent / 2))
weft-probe noise 2000 >/dev/null 2>&1
check "nobody can write the table" weft-probe intrude
check "it serves as before" weft-probe publish "$NODE" 9
check "what it is told after noise is found" lookup_is "$NODE" 9
check "SIGUSR1 reports records and connections" within 10 reports "weft-meta records=1 connections=0"

for ((n = 1; n <= 20; n++)); do
  sources+=(--source "10.77.0.$((100 + n))")
  ip -n n1 address add "10.77.0.$((100 + n))/24" dev v1
done
# crowd COUNT: of 20 addresses; a new one is of use after a moment.
crowd() { ip netns exec n1 weft-probe crowd "$1" "${sources[@]}"; }
check "300 connections of 20 addresses at once" within 20 crowd 300

# given users of an address with all connections that they get, then the node has its own
"${AS_USER[@]}" weft-probe crowd $READERS_PER_PEER --hold-s 1000 &
users=$!
check "users hold as many connections as they get" within 20 connections_are $READERS_PER_PEER
check "one more takes the place of one of theirs" lookup_is "$NODE" 9
check "and of one alone" within 10 connections_are $((READERS_PER_PEER - 1))
check "another address has its own" lookup_is "$NODE" 9 ip netns exec n1
check "the node publishes" weft-probe publish "$NODE" 10
check "which is found" lookup_is "$NODE" 10 ip netns exec n1
kill $users
wait $users 2>/dev/null
weft-probe crowd --reserved-ports $NODE_PER_PEER --hold-s 1000 &
root=$!
check "root holds as many as a node gets" within 20 connections_are $NODE_PER_PEER
check "one more takes the place of one of its" weft-probe publish "$NODE" 11
check "and is a node's: its record is found" lookup_is "$NODE" 11 ip netns exec n1
check "the server says that it has ended some" log_has 2 "at a limit of connections, the oldest was ended"
kill $root
wait $root 2>/dev/null
check "they make room when they go" within 10 weft-probe publish "$NODE" 9
check "and all go" within 10 connections_are 0

sleep 0.5
before=$(cpu_ticks)
sleep 2
is "idle, it uses no CPU" "$(($(cpu_ticks) - before))" 0
is "all of them are gone again" "$(report)" "weft-meta records=1 connections=0"

check "a second server on the port says what is wrong" refuses 1 "another program listens" weft-meta
check "so does one on the address" refuses 1 "another program listens" weft-meta --listen 10.77.0.1:7471
check "a second server on another port runs beside it" timeout -s TERM --preserve-status "$(seconds 3)" weft-meta --listen 10.77.0.1:7472

# given a server that can write nothing, then it serves
weft-meta --listen 10.77.0.1:7472 >/dev/full 2>/dev/full &
mute=$!
publish_there() { weft-probe --server 10.77.0.1:7472 publish "$NODE" "$1"; }
check "a server on a full disk takes records" within 10 publish_there 1
kill -USR1 $mute
check "a report that it cannot write does not end it" publish_there 2
kill -TERM $mute
wait $mute
is "SIGTERM does, cleanly" "$?" 0

stop TERM
is "SIGTERM ends it cleanly" "$STATUS" 0

start --capacity 1 --listen 10.77.0.1:7471 --registrar 10.77.0.1
check "too many records are sent" weft-probe fill 500
check "the first is there" lookup_is fd00::1 1
check "the last was refused" lookup_is fd00::1f4 absent
check "the log says that the table is full" grep -q "TABLE IS FULL" "$LOG"
stop INT
is "SIGINT ends it cleanly" "$STATUS" 0

check "an address that is not local" refuses 1 "no interface here has this address" weft-meta --listen 10.99.0.1:7471
check "a registrar that is no address" refuses 2 "invalid IP address" weft-meta --registrar host
check "capacity 0" refuses 2 "0 is not in 1.." weft-meta --capacity 0
check "a capacity beyond all bounds" refuses 1 "ask for fewer records" weft-meta --capacity 4000000000
check "a server that is not there" refuses 1 "cannot connect to weft-meta" weft-probe lookup "$NODE"

# given a user of a host without RDMA, who makes the packets of a connection by hand
rdma link delete rxe1
start --listen 10.77.0.1:7471
# The program takes CLAIMED GID [blind]. The user may not open its file.
readonly FORGE=(ip netns exec n1 "${AS_USER[@]}" python3 - 10.77.0.2 10.77.0.1 7471)
readonly FORGED=$HERE/forged-publication.py
check "it publishes for the address where it hears the answer" "${FORGE[@]}" 10.77.0.2 10.77.0.2 <"$FORGED"
check "which is found: that is how it is done" lookup_is 10.77.0.2 66
check "it publishes there without what the answer says" "${FORGE[@]}" 10.77.0.2 10.77.0.2 blind <"$FORGED"
check "the server says that this is ignored" within 20 log_has 1 "without the connection's token was ignored"
check "it publishes for another address there" "${FORGE[@]}" 10.77.0.2 10.77.0.9 <"$FORGED"
check "the server says that this is ignored too" within 20 log_has 1 "another node's record was ignored"
check "it claims to be at the other address, and gets no answer" refuses 1 "timed out" "${FORGE[@]}" 10.77.0.9 10.77.0.9 <"$FORGED"
check "because its path does not lead there" log_has 1 "its path does not lead to its address"
check "nothing of that is published" lookup_is 10.77.0.9 absent
check "what was never completed goes" within 30 connections_are 0
stop TERM

rdma link delete rxe0
check "no RDMA device" refuses 1 "no RDMA device is visible" weft-meta
done_testing

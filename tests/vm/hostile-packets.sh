#!/bin/bash
# What a stranger and a member of the network can do with packets made by hand:
# answers come at a bounded rate, contexts have a limit per address, what a header
# claims stays out of the DCCache, and the others work meanwhile.
# vm: --meta --nodes 3 --timeout 600
# checks: 24
. "$(dirname "$0")/lib.sh"

HERE=$(dirname "$0")
# Contexts that nodes have for one another, at most.
OTHERS=100
read -r PORT < <(weft-probe target 10.77.0.1 | cut -d' ' -f4)
# Of each node, what a member knows: DC target number, key, incarnation.
read -r -a NODE0 < <(weft-probe target 10.77.0.1 | cut -d' ' -f1-3)
read -r -a NODE1 < <(weft-probe target 10.77.0.2 | cut -d' ' -f1-3)

# hostile ADDR ACTION ARG...: from node 2's namespace.
hostile() {
  local addr=$1
  shift
  in_node 2 python3 "$HERE/hostile-packets.py" "$addr" "$PORT" "$@"
}
cached_peers() { weftctl nodes --json | tr ',{}' '\n' | sed -n 's/.*"cached_peers": *\([0-9]*\).*/\1/p' | head -n 1; }
# poured: packets that the targets neither want nor answer.
poured() { echo $(($(counter packets_dropped) + $(counter refusals_suppressed))); }
# pour_since N: many have come since there were N. A slow kernel gets fewer in the same time.
pour_since() { [ "$(poured)" -ge $(($1 + 500 / VM_SLOWNESS)) ]; }
few_contexts() { [ "$(counter contexts)" -lt 500 ]; }

before=$(counter contexts)
read -r answers allowed < <(hostile 10.77.0.2 strangers 5000)
at_most "a stranger's 5,000 requests are answered at a bounded rate" "$answers" "$allowed"
check "some are: a peer learns that its record is outdated" test "$answers" -gt 0
check "the others are counted" test "$(counter refusals_suppressed)" -gt 0
at_most "none of them has a context" "$(counter contexts)" "$((before + 8))"

before=$(counter packets_dropped)
is "bogus responses are not answered" "$(hostile 10.77.0.1 responses 5000)" 0
check "they are dropped" test "$(($(counter packets_dropped) - before))" -ge 4500

is "a repeated READ is answered as the first was, or not at all" "$(hostile 10.77.0.1 repeat "${NODE0[@]}")" 1

before=$(counter access_errors)
guesses=$(hostile 10.77.0.1 guesses "${NODE0[@]}")
check "keys that are guessed by repeats of a READ are refused" test "$guesses" -gt 50
check "each guess is counted" test "$(($(counter access_errors) - before))" -ge "$guesses"

before=$(cached_peers)
is "a notice with an unknown token is taken" "$(hostile 10.77.0.1 notice "${NODE0[@]}")" 0
sleep 1
is "what it claims of its sender is not in the DCCache" "$(cached_peers)" "$before"

# 4,096 sets, of few contexts each, however a member names its streams.
opened=$(hostile 10.77.0.2 one-stream "${NODE1[@]}" 4000)
check "one stream with ever new tokens opens contexts" test "$opened" -gt 1000
at_most "they share no set" "$(counter longest_context_set)" 100

# One address has a quarter of all: a 64th of the memory, 1 KiB or more each, or 8,192. The
# first ones may have taken it.
limit=$(awk '$1 == "MemTotal:" { quarter = int($2 / 1024 * 4); print (quarter > 2048 ? quarter : 2048) }' /proc/meminfo)
within 60 few_contexts
opened=$(hostile 10.77.0.2 contexts "${NODE1[@]}" $((limit * 5 / 2)))
check "a member opens contexts" test "$opened" -gt 0
# On a slow kernel the first ones have gone meanwhile.
at_most "but has not as many as it likes" "$(counter contexts)" "$((limit + OTHERS))"
check "the others work as before" weft-check data

while [ ! -e /tmp/enough ]; do
  hostile 10.77.0.2 strangers 20000
  hostile 10.77.0.2 responses 20000
  hostile 10.77.0.2 contexts "${NODE1[@]}" 5000
  hostile 10.77.0.2 one-stream "${NODE1[@]}" 5000
done >/dev/null 2>&1 &
flood=$!
check "packets pour in" within 20 pour_since "$(poured)"
before=$(poured)
check "the others work meanwhile" weft-check two-sided --among-strangers
check "and packets have gone on to pour in" pour_since "$before"
touch /tmp/enough
wait "$flood"
check "contexts that nobody uses go" within 60 few_contexts

for last in 201 202 203 204 205 206; do
  in_node 2 ip addr add "10.77.0.$last/24" dev v2
done
read -r searches good < <(hostile 10.77.0.2 all-contexts "${NODE1[@]}" 10.77.0.20{1..6})
# More contexts than four addresses may have mean that there is no limit for all of them.
if [ "$searches" = too-slow ] && [ "$good" -le $((4 * limit + OTHERS)) ]; then
  why="they cannot all be taken in time"
  skip "a stream that there is goes on when all contexts are taken" "$why"
  skip "and nobody looks for idle contexts because of it" "$why"
else
  check "a stream that there is goes on when all contexts are taken" \
    eval '[ "$searches" != too-slow ] && [ "${good:-0}" -gt 500 ]'
  is "and nobody looks for idle contexts because of it" "$searches" 0
fi
check "then others can have contexts again" within 60 few_contexts
check "and do" weft-check data
done_testing

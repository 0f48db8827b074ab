# How a VM test says what it found. Sourced by the tests, which run inside the
# machine: `check NAME CMD...` prints `ok NAME` or `not ok NAME`, and the
# script ends with `done_testing`. scripts/test counts the lines, and wants as many
# as the script's line `# checks: N` says.
set -uo pipefail

FAILURES=0
readonly COUNTERS=/sys/kernel/debug/weft/counters

ok() { printf 'ok %s\n' "$1"; }
not_ok() {
  printf 'not ok %s\n' "$1"
  FAILURES=$((FAILURES + 1))
  shift
  [ $# = 0 ] || printf '#   %s\n' "$@"
}

# skip NAME WHY: it cannot be checked on this kernel.
skip() { printf 'ok %s # SKIP %s\n' "$1" "$2"; }

# Whether this kernel keeps objects that were freed (KASAN's quarantine), so that their
# memory says nothing of what is in use.
keeps_freed() { [ "$VM_KERNEL" = checked ]; }

# check NAME CMD...: CMD's output is shown only if it fails.
check() {
  local name=$1 output
  shift
  if output=$("$@" 2>&1); then
    ok "$name"
  else
    not_ok "$name" "\$ $*" "$(printf '%s\n' "$output" | tail -n 20)"
  fi
}

# is NAME GOT WANTED: two empty texts are a failure, because what said nothing has failed.
is() {
  if [ "$2" = "$3" ] && [ -n "$2" ]; then ok "$1"; else not_ok "$1" "got ${2:-nothing}, wanted ${3:-something}"; fi
}

# No refusal takes longer.
readonly NO_WITHIN=20

# refuses STATUS TEXT CMD...: the program CMD ends by itself with STATUS and says TEXT. A
# program that is missing, crashes or hangs has not refused anything.
refuses() {
  local wanted=$1 text=$2 status=0 output
  shift 2
  [ "$wanted" -gt 0 ] && [ "$wanted" -lt 124 ] || { echo "status $wanted is no refusal"; return 1; }
  output=$(timeout "$(seconds $NO_WITHIN)" "$@" 2>&1) || status=$?
  [ "$status" = "$wanted" ] && grep -qF -- "$text" <<<"$output" && return
  printf '%s\n' "status $status, wanted $wanted and: $text" "it said: $output"
  return 1
}

# says TEXT CMD...: CMD ends well, and says TEXT.
says() {
  local text=$1 output
  shift
  output=$("$@" 2>&1) && grep -qF -- "$text" <<<"$output" && return
  printf '%s\n' "wanted: $text" "it said: $output"
  return 1
}

# at_most NAME GOT LIMIT
at_most() { if [ "$2" -le "$3" ]; then ok "$1"; else not_ok "$1" "got $2, at most $3 wanted"; fi; }

# in_node K CMD...
in_node() {
  local k=$1
  shift
  if [ "$k" = 0 ]; then "$@"; else ip netns exec "n$k" "$@"; fi
}

counter() { awk -v name="$1" '$1 == name { print $2 }' "$COUNTERS"; }

# What exists because a worker made it; all of it has to go with the worker.
worker_gauges() { awk '/^(sessions|vqps|mrs|pinned_pages) / { print $1, $2; n++ } END { exit n != 4 }' "$COUNTERS"; }

# Keeps the gauges, for `back_to_base`.
take_base() { BASE=$(worker_gauges) || not_ok "the gauges can be read"; }
back_to_base() {
  local now
  now=$(worker_gauges) && [ "$now" = "$BASE" ] || { echo "$now"; return 1; }
}

# Whether all nodes of the machine have told the meta servers of themselves.
all_published() { [ "$(counter nodes_published)" = "$VM_NODES" ]; }

# seconds N: so many of a stock kernel's, on this one.
seconds() { echo $(($1 * VM_SLOWNESS)); }
export -f seconds

# within SECONDS CMD...: true as soon as CMD is, false after SECONDS.
within() {
  local deadline=$((SECONDS + $(seconds "$1")))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.05
  done
}

done_testing() { exit $((FAILURES > 0)); }

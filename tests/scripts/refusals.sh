#!/bin/bash
# The tests in the virtual machine never take silence, a crash, a missing program or one
# that hangs for a refusal or an answer, nor two empty texts for equal ones. And the scripts refuse
# options that do not go together before they do anything, and say how they are called.
# checks: 26
export VM_SLOWNESS=1
. "$(dirname "$0")/../vm/lib.sh"
SCRIPTS=$(cd "$(dirname "$0")/../../scripts" && pwd)
# Nothing here takes longer; a program that hangs is to be waited for no longer.
seconds() { echo 2; }

# not CMD...: CMD does not hold.
not() { ! "$@"; }
# fails N CMD...: CMD reports N checks that do not hold.
fails() {
  local wanted=$1 output
  shift
  output=$("$@")
  [ "$(grep -c '^not ok' <<<"$output")" = "$wanted" ]
}
# ends STATUS TEXT: a program that says TEXT and ends so.
ends() { echo "echo '$2'; exit $1"; }

check "the right status and words are a refusal" refuses 1 "is in use" sh -c "$(ends 1 'it is in use')"
check "the right words alone are none" not refuses 1 "is in use" sh -c "$(ends 0 'it is in use')"
check "nor is the right status alone" not refuses 1 "is in use" sh -c "$(ends 1 'it is busy')"
check "nor a crash that says them" not refuses 1 "is in use" sh -c 'echo it is in use; kill -SEGV $$'
check "nor one that hangs and says them" not refuses 1 "is in use" sh -c 'echo it is in use; exec sleep 60'
check "nor a program that is not there" not refuses 1 "not found" no-such-program
check "nor can a test ask for the status of a time-out" not refuses 124 "" timeout 0.1 sleep 60

check "an answer is words and a good end" says "10.77.0.1" sh -c "$(ends 0 10.77.0.1)"
check "words and a bad end are none" not says "10.77.0.1" sh -c "$(ends 1 10.77.0.1)"
check "nor is silence" not says "10.77.0.1" true

check "equal words are equal" fails 0 is "a name" 8 8
check "but not two that are empty" fails 1 is "a name" "" ""

check "a shell has one machine" refuses 1 "not --vms 2" "$SCRIPTS/vm" shell --vms 2
check "and nobody else to run something" refuses 1 "--peer-cmd" "$SCRIPTS/vm" shell --peer-cmd true
check "nor a command of its own" refuses 1 "takes no command" "$SCRIPTS/vm" shell -- true
check "the checks of the checked kernel have their numbers" refuses 1 "takes no arguments" "$SCRIPTS/soak" checked --ops 5
check "README takes no results of a quick run" refuses 1 "without --quick" "$SCRIPTS/report" --readme --quick
for name in quickstart setup build install vm test soak bench report; do
  check "scripts/$name says how it is called" says "Usage: scripts/$name" "$SCRIPTS/$name" --help
done
done_testing

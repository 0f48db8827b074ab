#!/bin/bash
# README.md names scripts, files and programs that are there, and its shell commands are
# shell. (Its Rust code is compiled by tests/readme.)
# checks: 5
export VM_SLOWNESS=1
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$ROOT/tests/vm/lib.sh"
cd "$ROOT" || exit

# Lines of the shell.
commands() { sed -n '/^```sh$/,/^```$/p' README.md | grep -v '^```'; }

# all_of TEST LEAST: each word of the input passes `test TEST`, and there are enough of them.
all_of() {
  local word count=0 wrong=0
  while read -r word; do
    count=$((count + 1))
    test "$1" "$word" || { echo "$word"; wrong=1; }
  done
  [ "$count" -ge "$2" ] || { echo "only $count were found"; return 1; }
  return "$wrong"
}

scripts_exist() { grep -oE '\bscripts/[a-z-]+' README.md | sort -u | all_of -x 8; }
links_lead_somewhere() { grep -oE '\]\([^)#:]+\)' README.md | tr -d '](' | tr -d ')' | sort -u | all_of -e 3; }
sources_exist() { commands | grep -oE '[a-z/]+\.c\b' | sort -u | all_of -e 1; }
examples_exist() { commands | sed -n 's|.*--example \([a-z_]*\).*|userlib/examples/\1.rs|p' | all_of -e 3; }
commands_parse() { commands | bash -n && [ "$(commands | wc -l)" -ge 15 ]; }
check "scripts that it names are there" scripts_exist
check "links lead somewhere" links_lead_somewhere
check "C sources are there" sources_exist
check "examples are there" examples_exist
check "shell commands are shell" commands_parse
done_testing

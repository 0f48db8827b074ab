#!/bin/bash
# README.md and docs/operating.md name scripts, files and programs that are there, and their
# shell commands are shell; links of all documents lead somewhere. (The Rust code of README.md is
# compiled by tests/readme.)
# checks: 7
export VM_SLOWNESS=1
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
. "$ROOT/tests/vm/lib.sh"
cd "$ROOT" || exit
readonly FOR_USERS=(README.md docs/operating.md)
readonly DOCUMENTS=("${FOR_USERS[@]}" ARCHITECTURE.md tests/README.md)

# commands FILE...: lines of the shell.
commands() { sed -n '/^```sh$/,/^```$/p' "$@" | grep -v '^```'; }

# all_of LEAST CMD...: CMD holds for each word of the input, and there are enough of them.
all_of() {
  local least=$1 word count=0 wrong=0
  shift
  while read -r word; do
    count=$((count + 1))
    "$@" "$word" || { echo "$word"; wrong=1; }
  done
  [ "$count" -ge "$least" ] || { echo "only $count were found"; return 1; }
  return "$wrong"
}

# anchors FILE: those of its headings, as GitHub makes them.
anchors() { sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | tr -cd 'a-z0-9 _\n-' | tr ' ' '-'; }

# leads_somewhere FILE:LINK: the link's file is there, and has its anchor.
leads_somewhere() {
  local from=${1%%:*} link=${1#*:} file
  file=${link%%#*}
  if [ -n "$file" ]; then file=$(dirname "$from")/$file; else file=$from; fi
  [ -e "$file" ] || return
  [[ $link != *#* ]] || anchors "$file" | grep -xF -- "${link#*#}" >/dev/null
}
links() { grep -oHE '\]\([^):]+\)' "${DOCUMENTS[@]}" | sed 's/\](\(.*\))$/\1/' | sort -u; }

scripts_exist() { grep -ohE '(^|[^/a-z])scripts/[a-z-]+' "${FOR_USERS[@]}" | grep -o 'scripts/.*' | sort -u | all_of 8 test -x; }
links_lead_somewhere() { links | all_of 10 leads_somewhere; }
sources_exist() { commands README.md | grep -oE '[a-z/]+\.c\b' | sort -u | all_of 1 test -e; }
examples_exist() { commands README.md | sed -n 's|.*--example \([a-z_]*\).*|userlib/examples/\1.rs|p' | all_of 3 test -e; }
# commands_parse FILE LEAST
commands_parse() { commands "$1" | bash -n && [ "$(commands "$1" | wc -l)" -ge "$2" ]; }
# not CMD...: CMD does not hold.
not() { ! "$@"; }

check "scripts that they name are there" scripts_exist
check "links lead somewhere" links_lead_somewhere
check "one to a heading that is not there would not" not leads_somewhere "docs/operating.md:../README.md#no-such-heading"
check "C sources are there" sources_exist
check "examples are there" examples_exist
check "shell commands of README.md are shell" commands_parse README.md 15
check "so are those of docs/operating.md" commands_parse docs/operating.md 10
done_testing

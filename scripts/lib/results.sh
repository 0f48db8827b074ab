# Counts what passed and failed, and how long it took. Sourced after common.sh.

PASSED=0 FAILED=0 SKIPPED=0
# One line for each thing that ran: seconds, counts, name.
RAN=()
# And one for each check that failed: where and why, or where to read why.
WRONG=()

# record NAME SECONDS PASSED FAILED SKIPPED
record() {
  PASSED=$((PASSED + $3))
  FAILED=$((FAILED + $4))
  SKIPPED=$((SKIPPED + $5))
  RAN+=("$(printf '%5d s  %4d passed  %3d failed  %3d skipped  %s' "$2" "$3" "$4" "$5" "$1")")
}

# announce ok|not-ok NAME SECONDS
announce() {
  if [ "$1" = ok ]; then
    printf '\033[32mok\033[0m     %s (%d s)\n' "$2" "$3"
  else
    printf '\033[31mFAILED\033[0m %s (%d s)\n' "$2" "$3"
  fi
}

# check NAME CMD...: one check, which passes if CMD does.
check() {
  local name=$1 begin=$SECONDS log
  shift
  log=$(log_of "$name")
  if ("$@") >"$log" 2>&1 </dev/null; then
    announce ok "$name" $((SECONDS - begin))
    record "$name" $((SECONDS - begin)) 1 0 0
  else
    tail -n 60 "$log"
    explain_failure "$log"
    announce not-ok "$name" $((SECONDS - begin))
    record "$name" $((SECONDS - begin)) 0 1 0
    WRONG+=("$name: see $log")
    return 1
  fi
}

# count NAME COUNTER PLANNED CMD...: CMD runs many checks; COUNTER reads its output
# and prints how many passed, failed and were skipped. A command that fails, or that
# checks nothing or another number than PLANNED (`any` takes each), counts as a failed
# check if it has no other one to show for it. BEGAN is when it began, if that is not now.
count() {
  local name=$1 counter=$2 planned=$3 begin=${BEGAN:-$SECONDS} status=0 log passed failed skipped ran line
  shift 3
  log=$(log_of "$name")
  ("$@") 2>&1 </dev/null | tee "$log" || status=$?
  keep_last_try "$log"
  read -r passed failed skipped < <("$counter" <"$log")
  ran=$((passed + failed + skipped))
  if [ "$planned" != any ] && [ "$planned" != "$ran" ]; then
    say_wrong "$name: $ran checks ran, '# checks: $planned' was planned; it ended with status $status"
    explain_failure "$log"
    [ "$failed" != 0 ] || failed=1
  elif [ "$failed" = 0 ] && { [ "$status" != 0 ] || [ "$passed" = 0 ]; }; then
    failed=1
    say_wrong "$name: ended with status $status after $passed checks that passed"
    explain_failure "$log"
  fi
  while read -r line; do WRONG+=("$name: $line"); done < <(failed_in "$log")
  record "$name" $((SECONDS - begin)) "$passed" "$failed" "$skipped"
  if [ "$failed" = 0 ]; then announce ok "$name" $((SECONDS - begin)); else announce not-ok "$name" $((SECONDS - begin)); fi
}

# A line that says that all before it does not count.
AGAIN='[weft] the test begins again'

# keep_last_try LOG: drops what does not count.
keep_last_try() {
  local last
  last=$(grep -naF "$AGAIN" "$1" | tail -n 1 || true)
  [ -z "$last" ] || sed -i "1,${last%%:*}d" "$1"
}

# say_wrong LINE: now and in the summary.
say_wrong() {
  echo "$1"
  WRONG+=("$1")
}

# failed_in LOG: the lines that name a failed check, of scripts and of cargo, and what the
# kernel reported; not too many.
failed_in() { grep -aE '^not ok |^test .* \.\.\. FAILED$|the kernel reported a bug: ' "$1" | head -n 20; }

# planned_in SCRIPT: how many checks it says that it makes, in a line `# checks: N`. One
# that does not say cannot pass.
planned_in() {
  local planned
  planned=$(sed -n 's/^# checks: *\([0-9][0-9]*\) *$/\1/p' "$1")
  echo "${planned:-none}"
}

log_of() {
  mkdir -p "$WEFT_OUT/test"
  echo "$WEFT_OUT/test/$(printf '%s' "$1" | tr -c 'a-zA-Z0-9' '-').log"
}

# Counters: cargo's summaries, and `ok NAME` / `not ok NAME` lines.
count_cargo() {
  awk '/^test result: / { for (i = 2; i < NF; i++) { if ($(i+1) ~ /^passed/) p += $i; if ($(i+1) ~ /^failed/) f += $i
    if ($(i+1) ~ /^ignored/) s += $i } } END { print p + 0, f + 0, s + 0 }'
}
count_tap() {
  awk '/^ok .*# [Ss][Kk][Ii][Pp]/ { s++; next } /^ok / { p++ } /^not ok / { f++ } END { print p + 0, f + 0, s + 0 }'
}

# Prints all of it, the counts in the last line, and fails if anything did.
summary() {
  echo
  echo "What ran (logs: $WEFT_OUT/test):"
  printf '  %s\n' "${RAN[@]}"
  echo
  if [ ${#WRONG[@]} != 0 ]; then
    echo "What failed:"
    printf '  %s\n' "${WRONG[@]}"
    echo
  fi
  if [ "$SKIPPED" = 0 ]; then
    echo "$PASSED passed, $FAILED failed"
  else
    echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
  fi
  [ "$FAILED" = 0 ] && [ "$PASSED" -gt 0 ]
}

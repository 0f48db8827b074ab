# Runs what takes long, with its output in a log, and says how far it is: on a terminal
# in one line that moves, elsewhere in a line when it begins and one when it ends.
# Sourced by common.sh.

# Steps that run now: what each is called, its log, its process, when it began.
STEP_NAMES=() STEP_LOGS=() STEP_PIDS=() STEP_BEGUN=()

# Runs "$@" with its output in a log; shows the log's end if it fails. Not for
# conditions: bash would go on after an error inside.
# step WHAT CMD...
step() {
  start_step "$@"
  finish_steps
}

# start_step WHAT CMD...: runs it in the background, as a process group, so that it ends
# with this script.
start_step() {
  local what=$1 log
  shift
  mkdir -p "$WEFT_CACHE/log"
  log=$WEFT_CACHE/log/$(printf '%s' "$what" | tr -c 'a-zA-Z0-9' '-').log
  is_terminal || say "$what ..."
  [ -n "$(trap -p EXIT)" ] || trap stop_steps EXIT
  set -m
  (set -e; "$@") >"$log" 2>&1 </dev/null &
  set +m
  STEP_NAMES+=("$what") STEP_LOGS+=("$log") STEP_PIDS+=("$!") STEP_BEGUN+=("$SECONDS")
}

# Waits for all steps that were started. The first that fails ends the others and the
# script.
finish_steps() {
  local i
  while [ ${#STEP_PIDS[@]} -gt 0 ]; do
    for i in "${!STEP_PIDS[@]}"; do
      kill -0 "${STEP_PIDS[i]}" 2>/dev/null || end_of_step "$i"
    done
    show_progress
    sleep 0.2
  done
}

# end_of_step I: the process has ended.
end_of_step() {
  local status=0 what=${STEP_NAMES[$1]} log=${STEP_LOGS[$1]}
  wait "${STEP_PIDS[$1]}" || status=$?
  clear_progress
  if [ "$status" = 0 ]; then
    say "$what: done in $((SECONDS - STEP_BEGUN[$1])) s"
    unset "STEP_NAMES[$1]" "STEP_LOGS[$1]" "STEP_PIDS[$1]" "STEP_BEGUN[$1]"
    return
  fi
  unset "STEP_PIDS[$1]"
  stop_steps
  tail -n 25 "$log" >&2
  explain_failure "$log"
  die "$what failed." "The whole log is $log"
}

# Ends what still runs, with all its processes.
stop_steps() {
  local pid
  for pid in "${STEP_PIDS[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  STEP_PIDS=()
  clear_progress
}

clear_progress() { if is_terminal; then printf '\r\033[K' >&2; fi; }

# The line that moves: each step with its seconds, and what the last one says.
show_progress() {
  local i line='' last='' columns
  is_terminal && [ ${#STEP_PIDS[@]} -gt 0 ] || return 0
  for i in "${!STEP_PIDS[@]}"; do
    line+="${line:+, }${STEP_NAMES[i]} $((SECONDS - STEP_BEGUN[i])) s"
    last=${STEP_LOGS[i]}
  done
  last=$(tail -c 300 "$last" | sed 's/\x1b\[[0-9;]*[a-zA-Z]//g' | tr '\r' '\n' | tr -cd '[:print:]\n' | grep . | tail -n 1 || true)
  columns=$(stty size 2>/dev/null </dev/tty | cut -d' ' -f2 || true)
  [ "${columns:-0}" -gt 0 ] || columns=80
  line="[weft] $line: $last"
  printf '\r\033[K%s' "${line:0:$((columns - 1))}" >&2
}

# Says in plain words what the commonest failures mean.
explain_failure() {
  if grep -qiE 'no space left|not enough free space' "$1"; then
    say "the disk is full: $(df -h --output=avail "$WEFT_CACHE" | tail -n 1 | tr -d ' ') left in $WEFT_CACHE"
  elif grep -qiE 'could not resolve|temporary failure|failed to fetch|failed getting release file|connection (refused|timed out)|unable to connect|network is unreachable' "$1"; then
    say "the package registries cannot be reached: check the network and its proxy settings"
  fi
}

#!/bin/bash
# scripts/report and scripts/bench that are interrupted end at once: no other benchmark follows,
# and there is no page.
# checks: 5
. "$(dirname "$0")/lib/scratch.sh"

# A repository whose scripts build nothing, and whose machine waits to be interrupted and ends
# in order then, as scripts/vm does.
scratch_with report bench
cat >"$SCRATCH/scripts/build" <<'END'
#!/bin/bash
for folder in "$WEFT_OUT/target/release" "$WEFT_OUT/kmod"; do mkdir -p "$folder" && echo unknown >"$folder/built-from"; done
END
cat >"$SCRATCH/scripts/vm" <<'END'
#!/bin/bash
trap 'exit 130' INT
echo run >>"$RUNS"
for ((tries = 0; tries < 600; tries++)); do sleep 0.05; done
END
chmod +x "$SCRATCH/scripts/"{build,vm}

# interrupted NAME ARG...: the status of a script that all its processes are interrupted in, as
# a terminal does it, once its machine runs. RUNS has a line for each machine.
interrupted() {
  local name=$1 tries group
  shift
  RUNS=$SCRATCH/$name.runs
  : >"$RUNS"
  RUNS=$RUNS WEFT_CACHE=$SCRATCH/cache setsid env --default-signal=INT "$SCRATCH/scripts/$name" "$@" >"$SCRATCH/$name.out" 2>&1 &
  group=$!
  for ((tries = 0; tries < 600; tries++)); do
    [ ! -s "$RUNS" ] || break
    sleep 0.05
  done
  kill -INT -- "-$group"
  wait "$group"
  echo $?
}

is "a benchmark that is interrupted says so" "$(interrupted bench tail)" 130
is "so does a report" "$(interrupted report --only tail,mesh,worker --out "$SCRATCH/page.html")" 130
is "no other benchmark has followed" "$(grep -c run "$SCRATCH/report.runs")" 1
check "the first one is named" grep -q "scripts/bench tail" "$SCRATCH/report.out"
check "and there is no page" test ! -e "$SCRATCH/page.html"
done_testing

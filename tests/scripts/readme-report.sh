#!/bin/bash
# scripts/report --readme measures what README shows, with the options that weft-report names,
# and leaves README alone if a benchmark has failed. Each run has its own results.
# checks: 14
. "$(dirname "$0")/lib/scratch.sh"
export CALLS=$SCRATCH/calls OTHER=$SCRATCH/other.html

# A repository whose build makes a report that only says how it is called, and whose benchmarks
# do the same; that of $BROKEN fails.
scratch_with report
echo 'in_tree() { "$@"; }' >>"$SCRATCH/scripts/lib/common.sh"
cat >"$SCRATCH/weft-report" <<'END'
#!/bin/bash
echo "weft-report $1" >>"$CALLS"
case $1 in
  needs) printf '%s\n' 'connect --clients 1' 'worker ' ;;
  page) cat "$4" >"$3" ;;
esac
END
cat >"$SCRATCH/weft-bench" <<'END'
#!/bin/bash
printf '%s\n' 'Commands:' '  tail  Latencies' '  help  Helps' ''
END
cat >"$SCRATCH/scripts/build" <<END
#!/bin/bash
mkdir -p "\$WEFT_OUT/target/release" && cp "$SCRATCH"/weft-{report,bench} "\$WEFT_OUT/target/release"
END
cat >"$SCRATCH/scripts/bench" <<'END'
#!/bin/bash
cat >/dev/null
echo "bench ${*%/*}" >>"$CALLS"
echo "of $1" >"${@: -1}"
[ "$1" != "${DURING:-}" ] || "${0%/*}/report" --only other --out "$OTHER"
[ "$1" != "${BROKEN:-}" ]
END
chmod +x "$SCRATCH"/weft-{report,bench} "$SCRATCH/scripts/"{build,bench}

# report ARG...: its status; CALLS has what it has called.
report() {
  : >"$CALLS"
  WEFT_CACHE=$SCRATCH/cache "$SCRATCH/scripts/report" --out "$SCRATCH/page.html" "$@" >"$SCRATCH/out" 2>&1 </dev/null
  echo $?
}
# results: where they are kept; kept: what they are.
results() { echo "$SCRATCH/cache/out/"*/report/results.jsonl; }
kept() { tr '\n' ' ' <"$(results)"; }
benches() { grep -o '^bench .* --built' "$CALLS" | tr '\n' ' '; }

is "a report for README ends well" "$(report --readme)" 0
is "it has measured what README shows" "$(benches)" "bench connect --clients 1 --built bench worker --built "
is "and has written README, after the page" "$(grep -c 'weft-report page' "$CALLS") $(tail -n 1 "$CALLS")" "1 weft-report readme"
is "one of which a benchmark fails fails" "$(BROKEN=connect report --readme)" 1
is "the others have run" "$(benches)" "bench connect --clients 1 --built bench worker --built "
is "and README is as it was" "$(tail -n 1 "$CALLS"): $(grep -c 'README.md is as it was' "$SCRATCH/out")" "weft-report page: 1"
is "those that are named are measured, however they are parted" "$(report --only tail,mesh) $(benches)" \
  "0 bench tail --built bench mesh --built "
is "without names all of them are" "$(report) $(benches)" "0 bench tail --built "

# when a page is made from the results of the last run, then they are still there
is "a run's results are kept" "$(report --only tail,mesh) $(kept)" "0 of tail of mesh "
is "a page is made from them" "$(report --from "$(results)"; tr '\n' ' ' <"$SCRATCH/page.html")" "0
of tail of mesh "
is "they are as they were" "$(kept)" "of tail of mesh "
# and when another run ends meanwhile, then each has its own
is "a run during which another one ends has its own results" \
  "$(DURING="tail" report --only tail,mesh) $(kept) $(tr '\n' ' ' <"$SCRATCH/page.html")" "0 of tail of mesh  of tail of mesh "
is "so has the other one" "$(cat "$OTHER")" "of other"
is "nothing else is left" "$(cd "$(dirname "$(results)")/.." && echo *)" "report target"
done_testing

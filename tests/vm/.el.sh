. "$(dirname "$0")/lib.sh"
for kind in $KINDS; do
RUST_BACKTRACE=1 weft-fabric elastic $kind --changes $N --shrinking $S
done
done_testing

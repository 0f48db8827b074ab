. "$(dirname "$0")/lib.sh"
for kind in verbs weft; do
RUST_BACKTRACE=1 RUST_LOG=debug timeout 200 weft-fabric severed $kind
done
done_testing

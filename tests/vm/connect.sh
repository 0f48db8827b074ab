#!/bin/bash
# Workers on one node connect to others and move data, and leave nothing
# behind: the main job, through the programs that a user has.
# vm: --nodes 4 --meta-node 3
# checks: 14
. "$(dirname "$0")/lib.sh"

take_base

is "weftctl shows the nodes" "$(weftctl nodes | grep -cE 'rxe[0-3]')" 4
check "weftctl shows the module's status" says connects_cached weftctl status
check "the meta server knows node 0" says 10.77.0.1 weftctl lookup 10.77.0.1
check "the meta server knows node 1" says 10.77.0.2 weftctl lookup 10.77.0.2
check "node 1 asks it too" says 10.77.0.1 weftctl -d 1 lookup 10.77.0.1
check "a node that nobody has published is refused" refuses 1 "no meta server knows ::ffff:10.77.0.99" weftctl lookup 10.77.0.99

cached=$(counter connects_cached) uncached=$(counter connects_uncached) executed=$(counter requests_executed)
check "connections carry data" weft-bench connect --quick --systems weft --peers 2
check "some were made by asking the meta server" test "$(counter connects_uncached)" -gt "$uncached"
check "some were made from the cache" test "$(counter connects_cached)" -gt "$cached"
check "targets carried requests out" test "$(counter requests_executed)" -gt "$executed"
check "workers that ended left nothing" within 10 back_to_base
is "nor do the nodes count VQPs or regions" "$(weftctl --json nodes | grep -oE '"(vqps|mrs)": ?[0-9]+' | grep -c ': *0$')" 8

check "8 workers connect to one another" weft-bench mesh --quick --systems weft --workers 8
check "they left nothing either" within 10 back_to_base
done_testing

#!/bin/bash
# A process that knows another's keys, handles and addresses can neither read nor
# write its memory nor disturb it; what forks, execs and passes descriptors on
# gets no more than it was given.
# vm: --meta --nodes 7 --timeout 900
# checks: 602
exec weft-check isolation

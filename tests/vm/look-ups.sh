#!/bin/bash
# A node's RDMA device goes while its processes ask the meta server, which is on
# another machine: soft-RoCE keeps a device that a program of its own machine has open.
# Runs in both.
# vm: --vms 2 --nodes 2
# checks: 8
readonly SERVER=10.77.1.1:7471

if [ "$VM_INDEX" != 0 ]; then
  weft-meta --listen "$SERVER" &
  until [ -e "$VM_RUN/stop" ]; do sleep 1; done
  kill $!
  exit
fi

weft-check look-ups "$SERVER"
status=$?
touch "$VM_RUN/vm1/stop"
exit $status

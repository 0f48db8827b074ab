#!/bin/bash
# Every senseless work request gets its documented completion, and only its VQP
# suffers.
# vm: --meta --nodes 2
# checks: 48
exec weft-check bad-requests

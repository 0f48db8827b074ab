#!/bin/bash
# A node goes while it is used, with its address or with its device: errors, not
# hangs; it comes back as a new node. The module is loaded without meta server.
# vm: --nodes 3
# checks: 27
exec weft-check hot-plug

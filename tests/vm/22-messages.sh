#!/bin/bash
# Messages: to ports, back to who has sent, from many, of all lengths.
# vm: --meta --nodes 2
exec weft-check messages

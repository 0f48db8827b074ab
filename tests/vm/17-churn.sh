#!/bin/bash
# 10,000 connections that come and go leave nothing behind.
# vm: --meta --nodes 2
# checks: 4
exec weft-check churn

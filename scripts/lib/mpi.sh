# MPI's side of the benchmark rdmc: two MPI libraries in the build tree, which the benchmark's
# first run installs, and what they run. Sourced after common.sh and commit.sh.

MPI_NAMES="openmpi mpich"
MPI_PACKAGES="openmpi-bin libopenmpi-dev mpich libmpich-dev"
MPI_PROGRAMS=$WEFT_OUT/mpi

has_mpi() {
  local name
  for name in $MPI_NAMES; do
    [ -e "$WEFT_TREE/usr/bin/mpicc.$name" ] && [ -e "$WEFT_TREE/usr/bin/mpirun.$name" ] || return 1
  done
}

# rdmc runs in a condition, where no error ends this or build_bcast by itself.
install_mpi() {
  apt_in_tree update || return
  # shellcheck disable=SC2086
  apt_in_tree install $MPI_PACKAGES
}

# Half a gigabyte that nothing else needs: therefore not in scripts/setup.
need_mpi() { has_mpi || step "Open MPI and MPICH, to compare with (110 MB)" install_mpi; }

# Builds what both libraries run, by each of their compilers. The libraries find a function of
# theirs in it.
build_bcast() {
  local name
  for name in $MPI_NAMES; do
    tree_env in_tree "mpicc.$name" -O2 -Wall -Wextra -rdynamic -o "$MPI_PROGRAMS/bcast.$name" "$WEFT_ROOT/tests/bench/mpi/bcast.c" || return
  done
}

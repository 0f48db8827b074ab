# The build writes beside programs and module from which commit they were made, because the
# sources may have changed when results are to name it. Sourced after common.sh.

# The commit of the sources; with what is not committed it is "dirty".
source_commit() { git -C "$WEFT_ROOT" describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo unknown; }

# A folder for the commit that all programs were built from: an installation has all of them,
# results only some.
ALL_PROGRAMS=$WEFT_OUT/all-programs

# building FOLDER CMD...: CMD builds what is in FOLDER, and the folder's `built-from` says
# from which commit. Sources that change meanwhile are no commit's.
building() {
  local folder=$1 commit
  shift
  commit=$(source_commit)
  mkdir -p "$folder"
  rm -f "$folder/built-from"
  "$@" || return
  [ "$(source_commit)" = "$commit" ] || commit=unknown
  printf '%s\n' "$commit" >"$folder/built-from"
}

# building_part CMD...: CMD builds some of the programs. If they are of another commit than the
# others, all are of none.
building_part() {
  [ "$(cat "$ALL_PROGRAMS/built-from" 2>/dev/null)" = "$(source_commit)" ] || rm -f "$ALL_PROGRAMS/built-from"
  "$@"
}

# commit_of FOLDER...: the commit that what is in all of them was built from. Dies if they
# are of several, or do not say.
commit_of() {
  local folder commit found=''
  for folder in "$@"; do
    commit=$(cat "$folder/built-from" 2>/dev/null) ||
      die "nothing says which commit $folder was built from." "Run scripts/build first."
    [ -z "$found" ] || [ "$commit" = "$found" ] ||
      die "what is there was built from two commits: $found and $commit." "Run scripts/build first."
    found=$commit
  done
  printf '%s\n' "$found"
}

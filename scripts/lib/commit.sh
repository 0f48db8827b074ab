# The build writes beside programs and module from which commit they were made, because the
# sources may have changed when results are to name it. Sourced after common.sh.

# The commit of the sources; with what is not committed it is "dirty".
source_commit() { git -C "$WEFT_ROOT" describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo unknown; }

# building FOLDER CMD...: CMD builds what is in FOLDER, and the folder's `built-from` says
# from which commit. Sources that change meanwhile are no commit's.
building() {
  local folder=$1 commit
  shift
  commit=$(source_commit)
  rm -f "$folder/built-from"
  "$@" || return
  [ "$(source_commit)" = "$commit" ] || commit=unknown
  printf '%s\n' "$commit" >"$folder/built-from"
}

# commit_of FOLDER...: the commit that what is in all of them was built from. Dies if they
# are of several, or do not say.
commit_of() {
  local folder commit found=''
  for folder in "$@"; do
    commit=$(cat "$folder/built-from" 2>/dev/null) ||
      die "nothing says which commit $folder was built from." "Run scripts/build first."
    [ -z "$found" ] || [ "$commit" = "$found" ] ||
      die "what is measured was built from two commits: $found and $commit." "Run scripts/build first."
    found=$commit
  done
  printf '%s\n' "$found"
}

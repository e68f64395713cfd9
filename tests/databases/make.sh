#!/bin/sh
# Writes a database with the statements of make.sql. Kills the process, so that the log keeps its last commits.
# Usage: make.sh TAUT DIRECTORY
set -eu
here=$(dirname "$0")
scratch=$(mktemp -d)
mkfifo "$scratch/statements"
"$1" sql "$2" -f - < "$scratch/statements" > "$scratch/results" &
taut=$!
exec 3> "$scratch/statements"
cat "$here/make.sql" >&3
until grep -q "all statements have run" "$scratch/results"; do
    kill -0 "$taut"
    sleep 1
done
kill -9 "$taut"
exec 3>&-
rm -r "$scratch"
# The records of a log file are followed by zeros, which hold no data. Cut them off, so that a database takes 200 KB
# instead of 1.2 MB.
python3 - "$2"/log/*.log <<'END'
import os, sys
for name in sys.argv[1:]:
    os.truncate(name, -(-len(open(name, "rb").read().rstrip(b"\0")) // 4096) * 4096)
END

#!/usr/bin/env bash
# Every pipeline compiled by AMD's driver for six families of cards, without a card: none may fail to compile, spill
# registers or use scratch memory, and registers and vector instructions per weight must be those of the snapshot.
#
#   tests/tools/amd.sh DIR [COLI]            DIR keeps the driver (64 MB, fetched if it is not there);
#                                            COLI is a built program, else the working tree is built
#   tests/tools/amd.sh --update DIR [COLI]   writes the snapshot anew
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
families="polaris10 vega20 navi21 navi31 gfx1151 gfx1201"
snapshot=$root/snapshots/shaders-amd.snap

update=0
if [ "${1:-}" = --update ]; then update=1; shift; fi
if [ $# -lt 1 ] || [ $# -gt 2 ]; then echo "usage: tests/tools/amd.sh [--update] DIR [COLI]" >&2; exit 2; fi
[ -x "$1/radv" ] || "$here/radv-null.sh" "$1" >&2
driver=$(cd "$1" && pwd)
if [ $# = 2 ]; then
  coli=$(realpath "$2")
else
  (cd "$root" && cargo build --locked)
  coli=$(cd "$root" && realpath "${CARGO_TARGET_DIR:-target}/debug/coli")
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The driver's own cache would hide what its compiler does.
export MESA_SHADER_CACHE_DISABLE=true
compile() {
  "$driver/radv" "$1" "$coli" shaders --stats --device 0 >"$work/$1" 2>"$work/$1.err" || echo "$1" >>"$work/failed"
}
export -f compile
export driver coli work
printf '%s\n' $families | xargs -P "$(nproc)" -I{} bash -c 'compile {}'
if [ -s "$work/failed" ]; then
  for family in $(sort "$work/failed"); do
    echo "$family:"
    # The driver says once a pipeline that it has no disassembler for new families; coli reads another form then.
    grep -v 'not a recognized processor\|not a conformant Vulkan\|ac_compute_device_uuid' "$work/$family.err" || true
  done >&2
  exit 1
fi

# Lines of pipelines: name VGPRs SGPRs spills scratch LDS code instructions, then VALU per weight for 1, 8, 16 rows.
cd "$work"
if ! awk '
  $2 !~ /^[0-9]+$/ || NF != 11 { next }
  { seen[FILENAME]++ }
  $4 != 0 || $5 != 0 { print FILENAME ": " $1 " spills " $4 " registers and uses " $5 " bytes of scratch"; bad = 1 }
  END {
    for (i = 1; i < ARGC; i++) if (!seen[ARGV[i]]) { print ARGV[i] ": no pipelines"; bad = 1 }
    exit bad
  }' $families >&2; then exit 1; fi

awk '
  BEGIN { for (i = 1; i < ARGC; i++) column[ARGV[i]] = i }
  FNR == 1 && NR == 1 { sub(/^.*, /, ""); print "VGPRs and VALU per weight, by " $0 "; ? is a loop that was not recognised" }
  $2 !~ /^[0-9]+$/ || NF != 11 { next }
  {
    if (!($1 in row)) { row[$1] = ++rows; name[rows] = $1; if (length($1) > width) width = length($1) }
    cell[row[$1], column[FILENAME]] = sprintf("%4s %6s", $2, $9 != "-" ? $9 : $11)
  }
  END {
    printf "%-" width "s", "pipeline"
    for (f = 1; f < ARGC; f++) printf "  %11s", ARGV[f]
    print ""
    for (r = 1; r <= rows; r++) {
      printf "%-" width "s", name[r]
      for (f = 1; f < ARGC; f++) printf "  %11s", cell[r, f]
      print ""
    }
  }' $families >table

if [ "$update" = 1 ]; then
  cp table "$snapshot"
  echo "written: $snapshot"
elif ! diff -u "$snapshot" table; then
  echo "registers or instructions have changed; tests/tools/amd.sh --update DIR accepts them" >&2
  exit 1
else
  echo "$(($(wc -l <table) - 2)) pipelines as in $snapshot, for $families"
fi

# Shell tests: TAP and the program under test.  Sourced first; sets $drydock, $scratch, $data (the project's own samples).
# Environment from make: top_srcdir, top_builddir, MPIEXEC, MPIEXEC_FLAGS.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${MPIEXEC:=mpirun}" "${MPIEXEC_FLAGS:=}"
top_srcdir=$(cd "$top_srcdir" && pwd)
top_builddir=$(cd "$top_builddir" && pwd)
drydock=$top_builddir/drydock
data=$top_srcdir/tests/data
demo=$top_srcdir/config/demo
shared=${DRYDOCK_SHARED:-$top_srcdir/../shared}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/drydock-test.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
count=0 failed=0

# ok NAME COMMAND...: passes when the command succeeds
ok() {
	name=$1
	shift
	count=$((count + 1))
	if "$@" >"$scratch/.out" 2>&1; then
		echo "ok $count - $name"
	else
		failed=$((failed + 1))
		echo "not ok $count - $name"
		sed 's/^/# /' "$scratch/.out" | tail -n 30
	fi
}
# exits STATUS NAME COMMAND...: passes when the command ends with that status; its output is in $scratch/.out
exits() {
	want=$1 name=$2
	shift 2
	"$@" >"$scratch/.out" 2>&1
	got=$?
	count=$((count + 1))
	if [ "$got" -eq "$want" ]; then
		echo "ok $count - $name"
	else
		failed=$((failed + 1))
		echo "not ok $count - $name"
		echo "# exit status $got, want $want"
		sed 's/^/# /' "$scratch/.out" | tail -n 30
	fi
}
# says NAME TEXT: passes when the last command's output holds the text
says() {
	count=$((count + 1))
	if grep -qF -- "$2" "$scratch/.out"; then
		echo "ok $count - $1"
	else
		failed=$((failed + 1))
		echo "not ok $count - $1"
		echo "# not found: $2"
		sed 's/^/# /' "$scratch/.out" | tail -n 30
	fi
}
# ranks N COMMAND...: under the launcher
ranks() {
	n=$1
	shift
	# shellcheck disable=SC2086
	"$MPIEXEC" $MPIEXEC_FLAGS -n "$n" "$@"
}
skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}
done_testing() {
	echo "1..$count"
	[ "$failed" -eq 0 ]
}

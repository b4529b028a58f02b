# shellcheck shell=bash
# Planted causes: one run for each, and what its verdict must say first.  Sourced, after lib.sh's variables are set.
#
# A rank has about four micro-batches of 256 tokens in a step, which the demo's base computes in 50 ms on a core of its
# own, and in ten times as long where three ranks and other programs share two: delays are long enough for both.
planted="healthy data data-rank small checkpoint slow-rank padding start-up"

# plant CASE RANKS: sets want (the first cause), delay (DRY_DELAY) and more (options)
plant() {
	want=healthy delay="" more="--micro-batch-tokens 256 --effective-batch $((24 * $2)) --max-steps 16 --checkpoint-interval 8"
	case $1 in
	healthy) ;;
	data) want="data wait" delay=data:25 ;;
	data-rank) want="data wait" delay=rank:$(($2 - 1)):data:40 ;;
	small)
		want="small micro-batches"
		more="--per-device-batch-size 1 --effective-batch $2 --max-steps 80 --checkpoint-interval 500"
		;;
	checkpoint) want=checkpoint delay=checkpoint:800 more="$more --checkpoint-interval 4" ;;
	slow-rank) want="slow rank" delay=rank:$(($2 - 1)):compute:x2.2 ;;
	padding) want=padding more="$more --padding fixed" ;;
	start-up) want=start-up delay=start-up:5000 more="$more --max-steps 10" ;;
	*) echo "no such case: $1" >&2 && return 1 ;;
	esac
}
# run_planted RANKS OUTPUT: the run as planted; its lines are in OUTPUT.log
run_planted() {
	# shellcheck disable=SC2086
	DRY_DELAY=$delay "$MPIEXEC" $MPIEXEC_FLAGS -n "$1" "$drydock" finetune --base "$demo/base" --data "$demo/train.jsonl" \
		--cache "$(dirname "$2")/cache" --output "$2" --devices cpu --max-seq-length 256 --rank 8 $more >"$2.log" 2>&1
}
# first_cause OUTPUT
first_cause() { sed -nE 's/^(drydock: )?verdict: ([^,]*).*/\2/p' "$1.log" | head -n 1; }
# unexplained OUTPUT: the largest share of a rank's time that belongs to no stage, in percent
unexplained() {
	awk -F, 'NR == 1 { n = NF; next } { all[$4] += $6; none[$4] += $n }
	END { for (r in all) if (100 * none[r] > most * all[r]) most = 100 * none[r] / all[r]; printf "%.3f\n", most }' "$1/stages.csv"
}

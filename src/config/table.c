/*
 * The option table: every option of every command, one row each, in the order of struct dry_config.
 * Owns the rows, which are constant.  Must not know how a value is read or what it does.
 */
#include "config.h"

#include "config/options.h"

#include <stddef.h>
#include <string.h>

#define P DRY_CMD_PREPARE
#define L DRY_CMD_LENGTHS
#define N DRY_CMD_PLAN
#define F DRY_CMD_FINETUNE
#define E DRY_CMD_EVALUATE
#define M DRY_CMD_MERGE
#define T DRY_CMD_TOKENIZE
#define I DRY_CMD_INSPECT
#define O DRY_CMD_OPTIONS
#define C DRY_CMD_SCALE
#define W DRY_CMD_SWEEP
#define X DRY_CMD_COMPARE
#define R DRY_CMD_REPRODUCE
#define H DRY_CMD_REPORT
#define RECORDS (P | L | N | F | E | C | W)
#define TRAINS (N | F | C | W)
#define EVERY (RECORDS | M | T | I | O | X | R | H)

#define WHOLE_MOST 9007199254740992.0 /* 2^53: exact as a double and in every JSON reader */

/* The row's type follows from the member's, so a row cannot read or write another type than the struct has.
 */
#define MEMBER(member) (((struct dry_config *)NULL)->member)
#define AT(member, wanted)                                                                                                                           \
    .offset = offsetof(struct dry_config, member) + 0 * sizeof(struct {                                                                              \
                                                        int tied;                                                                                    \
                                                        _Static_assert(_Generic(MEMBER(member), int64_t                                            \
                                          : 'i', double                                                      \
                                          : 'r', int                                                         \
                                          : 'b', const char *                                                \
                                          : 't') == (wanted),                                                \
                                 #member " is of another type than its row"); \
                                                    })
#define WHOLE(name, member, low, high) \
    .flag = name, .type = DRY_OPT_INT, .least = low, .most = high, .argument = "N", AT(member, 'i')
#define REAL(name, member, low, high) \
    .flag = name, .type = DRY_OPT_REAL, .least = low, .most = high, .argument = "X", AT(member, 'r')
#define SWITCH(name, member) .flag = name, .type = DRY_OPT_BOOL, .argument = "true|false", AT(member, 'b')
#define TEXT(name, member, shown) .flag = name, .type = DRY_OPT_TEXT, .argument = shown, AT(member, 't')
#define CHOICE(name, member, words) \
    .flag = name, .type = DRY_OPT_CHOICE, .choices = words, .argument = words, AT(member, 't')
#define MAP(name, member, low, high) \
    .flag = name, .type = DRY_OPT_MAP, .least = low, .most = high, .argument = "NAME=N,...", AT(member, 't')

/* clang-format off */
static const struct dry_option table[] = {
#define GROUP .group = "Input and output"
    {TEXT("base", base, "DIR|NAME"), GROUP, .example = "Qwen/Qwen2.5-7B-Instruct", .scope = DRY_SCOPE_CONTRACT,
     .commands = RECORDS | M | T | I | R, .needed = (RECORDS & ~(L | W)) | M | T,
     .text = "Base model: a Hugging Face folder, or a hub name that the local Hugging Face cache holds."},
    {TEXT("data", data, "FILE"), GROUP, .example = "train.jsonl", .scope = DRY_SCOPE_CONTRACT,
     .commands = RECORDS | T | R, .needed = RECORDS & ~(L | W),
     .text = "Records, one JSON object a line; evaluate measures on them, tokenize reads texts from them "
             "(default there: standard input)."},
    {TEXT("validation-data", validation_data, "FILE"), GROUP, .example = "held-out.jsonl", .scope = DRY_SCOPE_RUN, .commands = P | N | F | W | R,
     .text = "Held-out records; their loss is measured every --validation-interval steps and at the end."},
    {TEXT("output", output, "DIR"), GROUP, .example = "runs/first", .scope = DRY_SCOPE_RUN,
     .commands = RECORDS | M | R, .needed = F | M | C | W | R,
     .text = "The run's folder: adapter, checkpoints, metrics and manifest; for merge the new model's folder."},
    {TEXT("cache", cache, "DIR"), GROUP, .example = "cache", .scope = DRY_SCOPE_RUN, .commands = RECORDS | R,
     .text = "Folder of tokenised records, which several runs may share (default: cache/ in the output folder); for lengths "
             "also one file of it."},
    {TEXT("adapter", adapter, "DIR"), GROUP, .example = "runs/first/adapter", .scope = DRY_SCOPE_RUN, .commands = E | M | I, .needed = M,
     .text = "A PEFT adapter folder to evaluate, merge or inspect."},
    {TEXT("init-adapter", init_adapter, "DIR"), GROUP, .example = "runs/zeroth/adapter", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS | R,
     .text = "A PEFT adapter folder to start from; its rank, alpha, patterns, targets and rsLoRA are taken over."},
#undef GROUP
#define GROUP .group = "Records"
    {CHOICE("template", template_name, "plain"), GROUP, .otherwise = "plain", .scope = DRY_SCOPE_CONTRACT,
     .commands = RECORDS,
     .text = "How a record becomes tokens; plain: prompt, separator, completion, end of text."},
    {TEXT("prompt-field", prompt_field, "NAME"), GROUP, .otherwise = "prompt", .scope = DRY_SCOPE_CONTRACT,
     .commands = RECORDS, .text = "Field of a record that holds the prompt."},
    {TEXT("completion-field", completion_field, "NAME"), GROUP, .otherwise = "completion",
     .scope = DRY_SCOPE_CONTRACT, .commands = RECORDS, .text = "Field of a record that holds the completion."},
    {TEXT("separator", separator, "TEXT"), GROUP, .otherwise = "\n", .scope = DRY_SCOPE_CONTRACT,
     .commands = RECORDS, .notes = DRY_NOTE_ESCAPES,
     .text = "Text between prompt and completion; \\n, \\t and \\\\ are understood."},
    {CHOICE("special-text", special_text, "parse|plain|error"), GROUP, .otherwise = "parse",
     .scope = DRY_SCOPE_CONTRACT, .commands = RECORDS,
     .text = "What a special token written in a record's text becomes: that token, plain text, or a bad record."},
    {WHOLE("max-seq-length", max_seq_length, 2, 1048576), GROUP, .otherwise = "1024",
     .scope = DRY_SCOPE_CONTRACT, .commands = RECORDS, .text = "Longest record in tokens."},
    {CHOICE("long-records", long_records, "error|drop|truncate"), GROUP, .otherwise = "error",
     .scope = DRY_SCOPE_CONTRACT, .commands = RECORDS, .text = "What happens to longer records."},
    {CHOICE("bad-records", bad_records, "error|drop"), GROUP, .otherwise = "error", .scope = DRY_SCOPE_CONTRACT,
     .commands = RECORDS, .text = "What happens to records that cannot be used."},
#undef GROUP
#define GROUP .group = "Adapter"
    {WHOLE("rank", rank, 1, 65536), GROUP, .otherwise = "16", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS,
     .text = "LoRA rank."},
    {REAL("alpha", alpha, 1e-6, 1e6), GROUP, .otherwise = "32", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS,
     .text = "LoRA alpha: the adapter's output is scaled by alpha / rank."},
    {REAL("lora-dropout", lora_dropout, 0, 0.99), GROUP, .otherwise = "0", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "Dropout on the adapter's input while training."},
    {SWITCH("rslora", rslora), GROUP, .otherwise = "false", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS,
     .text = "Scale by alpha / sqrt(rank) instead."},
    {TEXT("targets", targets, "NAME,...|all"), GROUP, .otherwise = "all", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .notes = DRY_NOTE_LIST,
     .text = "Projections that get an adapter: q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj."},
    {MAP("rank-pattern", rank_pattern, 1, 65536), GROUP, .example = "q_proj = 8; down_proj = 32;", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS,
     .notes = DRY_NOTE_WHOLE, .text = "Other ranks for modules by name, or by a regular expression as in PEFT."},
    {MAP("alpha-pattern", alpha_pattern, 1e-6, 1e6), GROUP, .example = "q_proj = 16.0;", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS,
     .text = "Other alphas for modules by name, or by a regular expression as in PEFT."},
#undef GROUP
#define GROUP .group = "Batch and schedule"
    {WHOLE("effective-batch", effective_batch, 1, 1e9), GROUP, .otherwise = "32", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS | L, .text = "Records per optimizer step over all ranks; the number of ranks never changes it."},
    {WHOLE("per-device-batch-size", per_device_batch_size, 0, 1e6), GROUP, .otherwise = "0",
     .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS | L,
     .text = "Records per micro-batch; 0: --micro-batch-tokens decides."},
    {WHOLE("gradient-accumulation-steps", gradient_accumulation_steps, 0, 1e6), GROUP, .otherwise = "0",
     .scope = DRY_SCOPE_RUN, .commands = TRAINS,
     .text = "Micro-batches per rank and step, from which the effective batch follows where that is unambiguous; "
             "0: derived from the effective batch."},
    {WHOLE("micro-batch-tokens", micro_batch_tokens, 0, 1e9), GROUP, .otherwise = "0",
     .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS | L | E,
     .text = "Tokens per micro-batch; 0: 4 x --max-seq-length, unless --per-device-batch-size is given."},
    {WHOLE("epochs", epochs, 1, 1e6), GROUP, .otherwise = "1", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS,
     .text = "Passes over the records."},
    {WHOLE("max-steps", max_steps, 0, 1e9), GROUP, .otherwise = "0", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS,
     .text = "Optimizer steps of the whole run, over as many epochs as that takes; 0: --epochs decides."},
    {WHOLE("seed", seed, 0, WHOLE_MOST), GROUP, .otherwise = "42", .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS | L,
     .text = "Seed of the order of records, of dropout and of the adapter's initial values."},
    {REAL("learning-rate", learning_rate, 0, 10), GROUP, .otherwise = "2e-4", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "Peak learning rate."},
    {REAL("weight-decay", weight_decay, 0, 10), GROUP, .otherwise = "0", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "Decoupled weight decay of AdamW."},
    {REAL("max-grad-norm", max_grad_norm, 0, 1e9), GROUP, .otherwise = "1.0", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "Gradients are clipped to this norm; 0: not clipped."},
    {REAL("adam-beta1", adam_beta1, 0, 0.999999), GROUP, .otherwise = "0.9", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "AdamW's decay of the first moment."},
    {REAL("adam-beta2", adam_beta2, 0, 0.9999999), GROUP, .otherwise = "0.999", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "AdamW's decay of the second moment."},
    {REAL("adam-epsilon", adam_epsilon, 1e-30, 1), GROUP, .otherwise = "1e-8", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "AdamW's epsilon."},
    {CHOICE("schedule", schedule, "cosine|linear|constant"), GROUP, .otherwise = "cosine",
     .scope = DRY_SCOPE_CONTRACT, .commands = TRAINS, .text = "Learning rate after the warm-up."},
    {WHOLE("warmup-steps", warmup_steps, -1, 1e9), GROUP, .otherwise = "-1", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "Steps of linear warm-up from 0; -1: --warmup-ratio decides."},
    {REAL("warmup-ratio", warmup_ratio, 0, 1), GROUP, .otherwise = "0.03", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS, .text = "Share of all steps that is warm-up."},
    {CHOICE("accept-batch-change", accept_batch_change, "keep|linear|sqrt"), GROUP, .example = "linear", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS,
     .text = "Lets a later start in a run's folder change the effective batch, with this rule for the learning rate."},
    {CHOICE("padding", padding, "flat|fixed"), GROUP, .otherwise = "flat", .scope = DRY_SCOPE_CONTRACT,
     .commands = TRAINS | L,
     .text = "What a record takes of computing; flat: its own tokens, nothing is padded; fixed: --max-seq-length tokens, as in "
             "trainers that pad, to compare with them."},
#undef GROUP
#define GROUP .group = "Running"
    {TEXT("devices", devices, "N,...|cpu"), GROUP, .example = "0,1,2", .scope = DRY_SCOPE_RUN, .commands = TRAINS | E | R,
     .notes = DRY_NOTE_LIST, .text = "GPUs of a node, one rank each (a number twice: two ranks share it), or cpu (default: a GPU for each rank of a node)."},
    {CHOICE("backend", backend, "auto|cpu|cuda"), GROUP, .otherwise = "auto", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS | E | R, .text = "What computes; auto: the GPU where there is one."},
    {CHOICE("communicator", communicator, "auto|mpi|nccl"), GROUP, .otherwise = "auto", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS | R,
     .text = "How ranks add up their gradients, to the same bits: over MPI, or from GPU to GPU by NCCL; auto: NCCL where each "
             "rank has a GPU of its own."},
    {CHOICE("recompute", recompute, "norms|none|full"), GROUP, .otherwise = "norms", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS,
     .text = "What backward computes again, memory against time with the same bits: norms: norm and SwiGLU outputs; none: "
             "SwiGLU's alone, for most memory; full: each layer from its input, for least memory and about a third more time."},
    {WHOLE("checkpoint-interval", checkpoint_interval, 0, 1e9), GROUP, .otherwise = "500", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS, .text = "Steps between checkpoints; 0: only at the end."},
    {WHOLE("keep-checkpoints", keep_checkpoints, 0, 1e6), GROUP, .otherwise = "3", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS, .text = "Newest checkpoints that are kept, beside the best; 0: all."},
    {WHOLE("validation-interval", validation_interval, 0, 1e9), GROUP, .otherwise = "0", .scope = DRY_SCOPE_RUN,
     .commands = TRAINS, .text = "Steps between validations; 0: only at the end."},
    {WHOLE("log-interval", log_interval, 1, 1e9), GROUP, .otherwise = "10", .scope = DRY_SCOPE_RUN, .commands = F | C | W | R,
     .text = "Steps between progress lines in a log."},
    {TEXT("resume", resume, "auto|never|STEP|FILE"), GROUP, .otherwise = "auto", .scope = DRY_SCOPE_RUN,
     .commands = F, .text = "Which checkpoint to go on from; auto: the output folder's newest valid one, if any."},
    {WHOLE("stop-after", stop_after, 0, 1e9), GROUP, .otherwise = "0", .scope = DRY_SCOPE_RUN, .commands = F,
     .text = "Stops after this step as a signal would: with a checkpoint and exit status 75; 0: runs to the end."},
    {REAL("sample-interval", sample_interval, 0, 3600), GROUP, .otherwise = "1.0", .scope = DRY_SCOPE_RUN,
     .commands = F | C | W | R, .text = "Seconds between samples of the GPU and the process, in gpu.csv and process.csv; 0: none."},
#undef GROUP
#define GROUP .group = "Measuring"
    {TEXT("ranks", ranks, "N,..."), GROUP, .example = "1,2,4", .scope = DRY_SCOPE_RUN, .commands = C, .notes = DRY_NOTE_LIST,
     .text = "Rank counts that scale measures, each on the first ranks of the allocation (default: 1 to 8, then doubling, and all of them)."},
    {WHOLE("steps", steps, 2, 1e9), GROUP, .otherwise = "50", .scope = DRY_SCOPE_RUN, .commands = C,
     .text = "Steps that scale runs on each rank count, the discarded ones included."},
    {WHOLE("discard-steps", discard_steps, 0, 1e9), GROUP, .otherwise = "5", .scope = DRY_SCOPE_RUN, .commands = C,
     .text = "First steps of each rank count that are run to warm up and not counted."},
    {REAL("target-hours", target_hours, 1e-6, 1e6), GROUP, .otherwise = "12", .scope = DRY_SCOPE_RUN, .commands = C | N,
     .text = "Hours that the whole training may take: scale, and plan with --measured, name the fewest ranks that meet them."},
    {TEXT("measured", measured, "DIR"), GROUP, .example = "scale", .scope = DRY_SCOPE_RUN, .commands = N,
     .text = "Folder of a finished scale or finetune, from whose measured times plan predicts this run's."},
    {WHOLE("ranks-each", ranks_each, 0, 1e6), GROUP, .otherwise = "0", .scope = DRY_SCOPE_RUN, .commands = W,
     .text = "Ranks of each configuration of a sweep; 0: the allocation's ranks shared out evenly, one at least."},
    {TEXT("vary", vary, "NAME=A,B;..."), GROUP, .example = "learning-rate=1e-4,2e-4;rank=8,16", .scope = DRY_SCOPE_RUN, .commands = W,
     .text = "Options that a sweep varies, each combination a configuration of its own; values that hold a comma are "
             "parted by |."},
    {TEXT("allow", allow, "NAME,..."), GROUP, .example = "data,cache", .scope = DRY_SCOPE_RUN, .commands = X | R, .notes = DRY_NOTE_LIST,
     .text = "Differences that are accepted: compare: data, contract, validation, cache; reproduce: versions, devices, data."},
    {WHOLE("from-step", from_step, 0, 1e9), GROUP, .otherwise = "0", .scope = DRY_SCOPE_RUN, .commands = R,
     .text = "Checkpoint of the run from which reproduce goes to the next one; 0: the whole run from its beginning."},
    {TEXT("scaling", scaling, "DIR"), GROUP, .example = "scale", .scope = DRY_SCOPE_RUN, .commands = H,
     .text = "Folder of a finished scale, whose curve is shown in the report too."},
#undef GROUP
#define GROUP .group = "Results"
    {WHOLE("shard-bytes", shard_bytes, 1, WHOLE_MOST), GROUP, .otherwise = "5000000000", .scope = DRY_SCOPE_RUN,
     .commands = M, .text = "Largest safetensors file of a merged model, in bytes."},
    {CHOICE("dtype", dtype, "base|float32|bfloat16|float16"), GROUP, .otherwise = "base", .scope = DRY_SCOPE_RUN,
     .commands = M, .text = "Type of a merged model's weights; base: as each tensor has it."},
    {SWITCH("json", json), GROUP, .otherwise = "false", .scope = DRY_SCOPE_RUN, .commands = P | L | N | E | I | C | W | X | R | H,
     .text = "Prints the table as JSON on standard output."},
    {SWITCH("show-records", show_records), GROUP, .otherwise = "false", .scope = DRY_SCOPE_RUN, .commands = N,
     .text = "Also lists the lines of the data in each step and micro-batch."},
    {SWITCH("verbose", verbose), GROUP, .otherwise = "false", .scope = DRY_SCOPE_RUN, .commands = I,
     .text = "Lists every tensor or record."},
    {WHOLE("record", record, -1, WHOLE_MOST), GROUP, .otherwise = "-1", .scope = DRY_SCOPE_RUN, .commands = I,
     .text = "Shows the tokens of this record of a cache, counted from 0; -1: none."},
    {SWITCH("special", special), GROUP, .otherwise = "true", .scope = DRY_SCOPE_RUN, .commands = T,
     .text = "Whether special tokens written in a text are recognised, where a line does not say so itself."},
    {SWITCH("man", man), GROUP, .otherwise = "false", .scope = DRY_SCOPE_RUN, .commands = O,
     .text = "Prints the options as a section of the manual page instead."},
    {CHOICE("log-level", log_level, "error|warn|info|debug"), GROUP, .otherwise = "info", .scope = DRY_SCOPE_LOCAL,
     .commands = EVERY, .text = "Least important lines that are shown."},
#undef GROUP
    {.flag = NULL},
};
/* clang-format on */

static const char *const command_names[] = {"prepare", "lengths",  "plan",      "finetune", "evaluate",
                                            "merge",   "tokenize", "inspect",   "options",  "scale",
                                            "sweep",   "compare",  "reproduce", "report"};
_Static_assert(1 << (sizeof command_names / sizeof *command_names - 1) == DRY_CMD_REPORT,
               "a name for every command bit");

const struct dry_option *dry_option_table(void)
{
    return table;
}

const char *dry_command_name(unsigned bit)
{
    for (size_t i = 0; i < sizeof command_names / sizeof *command_names; i++)
        if (bit == 1U << i)
            return command_names[i];
    return NULL;
}

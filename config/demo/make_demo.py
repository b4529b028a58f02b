#!/usr/bin/env python3
"""Make the demo: a small Llama base trained from scratch, and a fine-tuning task that it has not learned.

usage: make_demo.py [--out DIR] [--steps N] [--data-only]      needs: torch transformers tokenizers safetensors

Everything comes from one seed and the templates below, so nothing here is anybody else's text or weights.  The base
learns a small world: people with a town, a job, a pet, a food and a colour; sums; sorting, counting and spelling.  It
answers questions in sentences; JSON it knows only where "Data about" asks for it.  The fine-tuning task asks the questions
and wants JSON.  Its validation records ask about people whom its training records never mention, so a low held-out loss
means that the adapter found what the base knows, not that it learned the records by heart.
"""
import argparse, json, math, os, random, time

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

SEED = 20
VOCABULARY, HIDDEN, LAYERS, HEADS, KV_HEADS, FFN = 1024, 128, 4, 4, 2, 352
ROW, ROWS, RATE = 192, 24, 4e-3  # tokens per row, rows per step, peak learning rate
EOS = "<|endoftext|>"

PEOPLE = """Ada Alba Amos Anton Bela Bruno Carla Cato Dana Dario Edda Elio Emil Enzo Fenja Fiona Gina Greta Hanno Hella
Ida Igor Ines Ivo Jana Jonas Kaja Karl Lars Lena Lino Lotte Luca Mara Milo Mira Nadia Nils Nora Olga Omar Otto Paula Pia
Quinn Rafa Rita Rosa Sami Selma Sven Tara Tilda Timo Ugo Ulla Vera Viktor Wanda Willem Xenia Yara Yuri Zora""".split()
FIELDS = {
    "town": "Arlow Birk Corvan Dunmere Elsby Fenwick Garth Holm Ilken Jorvik Kelda Lund".split(),
    "job": "baker carpenter doctor farmer fisher miller painter pilot singer smith tailor teacher".split(),
    "pet": "cat dog goat hen horse mouse otter parrot rabbit snail".split(),
    "food": "apples bread cheese honey noodles olives pears rice soup walnuts".split(),
    "colour": "blue brown green grey orange pink red white yellow".split(),
}
WORDS = """anchor apple basket bell bottle bridge button candle carpet chair circle cloud clock coat copper cup desk door
drum engine feather fence flag forest garden glass glove hammer harbour hat island jacket kettle key ladder lamp leaf
lemon letter map mirror mountain needle oven paper pencil plate pocket river rope saddle salt shell ship shoe silver
spoon stone table thread ticket tower tree umbrella valley violin wagon water wheel window winter""".split()
THINGS = "apples books boxes buttons cups eggs keys lamps letters pears ropes shells spoons stones tickets".split()


def world(rng):
    """Each person's five facts."""
    return {p: {f: rng.choice(v) for f, v in FIELDS.items()} for p in PEOPLE}


def article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def fact(rng, facts, person):
    """A question about one fact, its answer as a sentence, and field and value."""
    field = rng.choice(list(FIELDS))
    value = facts[person][field]
    question = {
        "town": ["Where does {} live?", "Which town is the home of {}?", "In which town does {} live?"],
        "job": ["What is the job of {}?", "What does {} do for a living?", "Which job does {} have?"],
        "pet": ["Which pet does {} have?", "What animal lives with {}?", "What is the pet of {}?"],
        "food": ["What does {} like to eat?", "Which food does {} like?", "What is the favourite food of {}?"],
        "colour": ["Which colour does {} like?", "What is the favourite colour of {}?", "What colour is the coat of {}?"],
    }[field]
    sentence = {
        "town": f"{person} lives in {value}.",
        "job": f"{person} is {article(value)}.",
        "pet": f"{person} has {article(value)}.",
        "food": f"{person} likes {value}.",
        "colour": f"The favourite colour of {person} is {value}.",
    }[field]
    return rng.choice(question).format(person), sentence, field, value


def story(facts, person):
    f = facts[person]
    return (f"{person} lives in {f['town']} and is {article(f['job'])}. {person} has {article(f['pet'])}, likes {f['food']}, "
            f"and the favourite colour of {person} is {f['colour']}.")


def arithmetic(rng):
    a, b, who, thing = rng.randint(1, 20), rng.randint(1, 20), rng.choice(PEOPLE), rng.choice(THINGS)
    if rng.random() < 0.5:
        text = rng.choice([f"{who} has {a} {thing} and finds {b} more. How many {thing} does {who} have now?",
                           f"There are {a} {thing} in a box. {who} puts in {b} more. How many {thing} are in the box?",
                           f"What is {a} plus {b}?"])
        return text, "plus", a, b, a + b
    a, b = max(a, b), min(a, b)
    text = rng.choice([f"{who} has {a} {thing} and gives away {b}. How many {thing} are left?",
                       f"There are {a} {thing} on a table. {who} takes {b}. How many {thing} are left?",
                       f"What is {a} minus {b}?"])
    return text, "minus", a, b, a - b


def listed(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def base_document(rng, facts):
    """One document that the base learns from."""
    kind = rng.random()
    if kind < 0.33:
        question, sentence, _, _ = fact(rng, facts, rng.choice(PEOPLE))
        return question + "\n" + sentence
    if kind < 0.42:
        person = rng.choice(PEOPLE)
        return rng.choice([f"Tell me about {person}.", f"Who is {person}?"]) + "\n" + story(facts, person)
    if kind < 0.54:
        text, op, a, b, c = arithmetic(rng)
        return f"{text}\n{a} {op} {b} is {c}."
    words = rng.sample(WORDS, rng.randint(2, 6))
    if kind < 0.60:
        return f"Sort these words: {', '.join(words)}.\nIn order: {listed(sorted(words))}."
    if kind < 0.65:
        return f"How many words are these: {', '.join(words)}?\nThere are {len(words)} words."
    if kind < 0.70:
        return f"Spell the word {words[0]}.\nThe word {words[0]} is spelled {'-'.join(words[0])}."
    return data_document(rng, facts)


def card(facts, people, fields):
    """What is known of these people, as JSON: an object, or a list of them."""
    cards = [{"name": p} | {f: facts[p][f] for f in fields} for p in people]
    return cards[0] if len(cards) == 1 else cards


def data_document(rng, facts):
    """The same world as data: asked for by name, never as the answer to a question."""
    kind = rng.random()
    if kind < 0.6:
        people, fields = rng.sample(PEOPLE, rng.choice([1, 1, 1, 2, 3])), rng.sample(list(FIELDS), rng.randint(1, 5))
        return f"Data about {listed(people)}: {', '.join(fields)}\n" + json.dumps(card(facts, people, fields))
    if kind < 0.75:
        _, op, a, b, c = arithmetic(rng)
        return f"Data about a sum: {a} {op} {b}\n" + json.dumps({"sum": f"{a} {op} {b}", "answer": c})
    words = rng.sample(WORDS, rng.randint(1, 6))
    if kind < 0.9:
        return f"Data about words: {', '.join(words)}\n" + json.dumps({"count": len(words), "words": words})
    return f"Data about the letters of {words[0]}\n" + json.dumps({"word": words[0], "letters": list(words[0])})


def task_record(rng, facts, people):
    """One record of the fine-tuning task: the base's questions, and some of its own, answered in JSON."""
    kind = rng.random()
    if kind < 0.40:
        person = rng.choice(people)
        question, _, field, _ = fact(rng, facts, person)
        return question, card(facts, [person], [field])
    if kind < 0.70:
        who, fields = rng.sample(people, rng.choice([1, 1, 1, 2, 3])), rng.sample(list(FIELDS), rng.randint(2, 5))
        return f"Write a card for {listed(who)} with {listed(fields)}.", card(facts, who, fields)
    if kind < 0.80:
        text, op, a, b, c = arithmetic(rng)
        return text, {"sum": f"{a} {op} {b}", "answer": c}
    words = rng.sample(WORDS, rng.randint(2, 6))
    if kind < 0.90:
        return f"How many words are these: {', '.join(words)}?", {"count": len(words), "words": words}
    return f"Spell the word {words[0]}.", {"word": words[0], "letters": list(words[0])}


def write_task(path, rng, facts, people, count):
    seen = set()
    with open(path, "w", encoding="utf-8") as out:
        while len(seen) < count:
            prompt, answer = task_record(rng, facts, people)
            if prompt not in seen:
                seen.add(prompt)
                out.write(json.dumps({"prompt": prompt, "completion": json.dumps(answer)}) + "\n")


def train_tokenizer(documents):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[EOS, "<|pad|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def rows_of(documents, tokenizer, eos):
    """Whole documents, one after another, in rows that each begin with a document; the rest of a row is not learned."""
    row = []
    for document in documents:
        ids = tokenizer.encode(document).ids + [eos]
        if len(row) + len(ids) > ROW:
            yield row
            row = []
        row += ids[:ROW]


def train(model, tokenizer, rng, facts, steps):
    eos = tokenizer.token_to_id(EOS)
    source = rows_of(iter(lambda: base_document(rng, facts), None), tokenizer, eos)
    decay = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    warmup, start, mean = max(1, steps // 20), time.time(), 0.0
    model.train()
    for step in range(steps):
        rate = RATE * min(1.0, (step + 1) / warmup) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        rows = [next(source) for _ in range(ROWS)]
        ids = torch.full((ROWS, ROW), eos)
        labels = torch.full((ROWS, ROW), -100)
        for i, row in enumerate(rows):
            ids[i, :len(row)] = labels[i, :len(row)] = torch.tensor(row)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.item() if step == 0 else 0.9 * mean + 0.1 * loss.item()
        if (step + 1) % 25 == 0 or step == 0:
            print(f"step {step + 1}/{steps} loss {mean:.4f} {time.time() - start:.0f} s", flush=True)
    model.eval()


def write_base(folder, model, tokenizer):
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    tensors = {n: p.detach().to(torch.bfloat16).contiguous() for n, p in model.named_parameters()}
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    eos, pad = tokenizer.token_to_id(EOS), tokenizer.token_to_id("<|pad|>")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "attention_bias": False, "mlp_bias": False, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None,
        "max_position_embeddings": 1024, "vocab_size": VOCABULARY, "tie_word_embeddings": True, "bos_token_id": eos,
        "eos_token_id": eos, "pad_token_id": pad, "torch_dtype": "bfloat16"}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False, "clean_up_tokenization_spaces": False,
        "model_max_length": 1024, "eos_token": EOS, "bos_token": EOS, "pad_token": "<|pad|>"}
    for name, value in (("config.json", config), ("tokenizer_config.json", settings),
                        ("generation_config.json", {"bos_token_id": eos, "eos_token_id": eos, "pad_token_id": pad})):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            json.dump(value, out, indent=2)
            out.write("\n")


def show(folder, tokenizer, facts, prompts):
    """What the written base answers, greedily."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    eos = tokenizer.token_to_id(EOS)
    for prompt in prompts:
        ids = tokenizer.encode(prompt + "\n").ids
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                             max_new_tokens=60, do_sample=False, eos_token_id=eos, pad_token_id=eos)
        print(f"  {prompt} -> {tokenizer.decode(out[0, len(ids):].tolist())}")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=here, help="folder for base/, train.jsonl and validation.jsonl (default: this one)")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of the base")
    parser.add_argument("--data-only", action="store_true", help="write train.jsonl and validation.jsonl, leave base/ alone")
    a = parser.parse_args()

    os.makedirs(a.out, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(SEED)
    facts = world(random.Random(SEED))
    shuffled = random.Random(SEED + 1).sample(PEOPLE, len(PEOPLE))
    write_task(os.path.join(a.out, "train.jsonl"), random.Random(SEED + 2), facts, shuffled[16:], 360)
    write_task(os.path.join(a.out, "validation.jsonl"), random.Random(SEED + 3), facts, shuffled[:16], 64)
    if a.data_only:
        return

    rng = random.Random(SEED + 4)
    tokenizer = train_tokenizer([base_document(rng, facts) for _ in range(20000)])
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
                         num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=1024,
                         tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0, pad_token_id=1)
    model = LlamaForCausalLM(config)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {tokenizer.get_vocab_size()} tokens")
    train(model, tokenizer, rng, facts, a.steps)
    base = os.path.join(a.out, "base")
    write_base(base, model, tokenizer)
    show(base, tokenizer, facts, ["Where does Mira live?", "Who is Otto?", "What is 7 plus 8?", "Spell the word kettle.",
                                  "Sort these words: ship, apple, lamp.", "Data about Mira: town, job"])


if __name__ == "__main__":
    main()

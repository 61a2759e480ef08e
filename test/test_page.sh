#!/bin/bash
# circle: docs
# test/test_page.sh: what the script of report.html shows of a run, in a headless browser (doc/report.md).
#
# Each test writes the files of a run, makes its page, and looks at the page after its script has run: its text, with | for
# tags, in $work/text, and its elements in $work/dom. dev/reference/check_page.py looks at real runs, zooms and clicks.
set -u
cd "$(dirname "$0")/.." || exit 1
BUILD=${BUILD:-build}
work=$(mktemp -d "${TMPDIR:-/tmp}/testpage.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
export LC_ALL=C.UTF-8
# shellcheck source=test/passes_common.sh
. test/passes_common.sh
browser=
for name in chromium chromium-browser google-chrome; do command -v $name >/dev/null 2>&1 && { browser=$name; break; }; done
if [ -z "$browser" ]; then
    echo 'skip the page in a browser (no chromium)'
    exit 0
fi
run=$work/run

begin() { rm -rf "$run" && mkdir "$run"; } # the files of a new run; its lines come from stdin
look() { # what a browser shows of the run; with a sed command: of its page, changed so
    "$BUILD/show" plot "$run" --html >/dev/null
    sed "${1:-}" "$run/report.html" >"$work/page.html"
    HOME=$work timeout 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$work/profile" \
        --window-size=1280,900 --enable-logging=stderr --dump-dom "file://$work/page.html" 2>"$work/browser" | tr '\n' ' ' >"$work/dom"
    if grep CONSOLE "$work/browser"; then return 1; fi # an error, or a load that the page's policy forbids
    sed -i 's|<script type="application/json".*||' "$work/dom" # what follows is the data and the script
    sed 's/<style>.*<.style>//; s/<[^>]*>/|/g; s/| *|/|/g; s/||*/|/g' "$work/dom" >"$work/text"
}
has() { # TEXT...: the page shows each
    local text
    for text; do grep -qF -- "$text" "$work/text" || { echo "the page lacks $text"; return 1; }; done
}
lacks() { if grep -F -o -- "$1" "$work/text"; then return 1; fi; }
drawn() { # KEYS: the paths of that chart's curves, one a line
    sed "s/.*<figure[^>]*data-keys=\"$1\"//; s/<.figure>.*//" "$work/dom" | grep -o '<path d="[^"]*"' | sed 's/.*"\(.*\)"/\1/'
}
points() { drawn "$1" | sed -n "${2:-1}p" | grep -o '[ML]' | wc -l; }
train() { # FROM TO [MORE]: train lines of these steps, with a loss that falls from 4 by 1/2
    awk -v from="$1" -v to="$2" -v more="${3:-}" \
        'BEGIN { for (i = from; i <= to; i++) printf "{\"event\":\"train\",\"step\":%d,\"tokens\":%d,\"loss\":%g%s}\n", i, 64 * i, 4 - i / 2, more }'
}

numbers() {
    begin
    {
        echo '{"event":"start","step":0,"name":"a run","text":"GPT, 2 layers","params":123456,"steps":3,"floor_loss":1.5,"mem_parameters":4000000,"mem_activations":12000000}'
        train 1 3 ',"lr":0.001,"grad_norm":0.5,"dt_ms":8,"tok_s":8000,"mfu":0.25,"samples_s":125,"data_ms":0.5,"forward_ms":2,"backward_ms":4,"comm_ms":0.25,"optim_ms":1,"save_ms":2'
        echo '{"event":"sample","step":3,"text":"Once upon"}'
        echo '{"event":"save","step":3,"text":"checkpoints/step_00000003"}'
        echo '{"event":"end","step":3,"tokens":192,"val_loss":3,"val_bpb":1.25,"seconds":0.024}'
    } >"$run/metrics.jsonl"
    printf '%s\n' '# All settings; after a value, where it came from.' '[run]' 'name = "a # \"b\""  # x.toml:3' 'steps = 0.0' 'seed = 1336  # command line' \
        '# trace = 7  # no effect: needs parallel.pp>1' '[optim]' 'min_lr = 0.1  # derived: lr / 10' '[parallel]' '# dp = 2  # derived' '[new]' 'key = 5' >"$run/config.toml"
    look
    has '|a run |finished|' '|GPT, 2 layers|' 'step |3| of |3|, 100.0% · all steps are made|' '|training loss, last step|2.5000|' '|validation loss|3.0000|' \
        '|above the floor|100.0%|validation|' '|floor|1.5000|' '|parameters|123k|' '|speed, mean|8k|' '|MFU, mean|25.0%|' '|time of training|0 s|' \
        '|training 2.5|validation 3|floor 1.5|' '|val_bpb|1.25|3|1.25|3|1.25|3|' '|forward|2.000|25.0%|' '|communication, waited for|0.250|3.1%|' '|other|0.250|' \
        '|saving, between steps|2.000|25.0%|' '|activations|12.00|75.0%|' '|all|16.00|100.0%|' '|step 3|Once upon|' '|save|checkpoints/step_00000003|'
    # shellcheck disable=SC1003
    has 'Changed from the default: 3|' 'Derived from others: 2|' 'At their default: 1|' '|run.name|a # \"b\"|run|x.toml:3|' '|run.seed|1336|1337|command line|' '|parallel.dp|2|' '|new.key|5|' \
        'not a setting of this version'
    lacks run.trace
    lacks 'Other measurements' # all have a place of their own
    [ "$(drawn loss,val_loss | wc -l)" = 2 ] && [ "$(points loss,val_loss)" = 3 ]
    drawn loss,val_loss | head -n 1 | grep -q 'L1044.0 ' # the last step is at the right edge
}

named() {
    begin
    { train 1 1; for step in 4 8; do
        echo "{\"event\":\"set\",\"step\":$step,\"name\":\"books\",\"val_loss\":$((12 - step)),\"val_bpb\":1.5}"
        echo "{\"event\":\"task\",\"step\":$step,\"name\":\"piqa\",\"items\":30,\"acc\":0.5,\"acc_norm\":null,\"perplexity\":null}"
    done; train 9 9 ',"new_key":7'; } >"$run/metrics.jsonl"
    look
    has '|on: books 4|' '|val_loss books|4|8|4|8|8|4|' '|acc piqa|0.5|8|' '|accuracy of tasks|piqa 0.5|' '|Other measurements|new_key|new_key 7|'
    lacks '|set|' && lacks 'acc_norm piqa' && lacks '|perplexity of tasks'
    [ "$(points 'loss,val_loss books' 2)" = 2 ]
}

# 10 ms at 1,000 tokens a second and 30 ms at 200 are 16 tokens in 40 ms. null: a gap.
rates_and_gaps() {
    begin
    printf '{"event":"train","step":%s,"loss":%s,"dt_ms":%s,"tok_s":%s,"mfu":%s}\n' 1 3 10 1000 0.5 2 3 30 200 0.1 >"$run/metrics.jsonl"
    look
    has '|speed, mean|400|' '|MFU, mean|20.0%|' '|20.000 ms| in the mean. This run has not recorded its phases.'
    { train 1 2; printf '{"event":"train","step":3,"loss":null,"loss_nan":true}\n{"event":"train","step":4,"loss":null,"loss_inf":1}\n'; train 5 6; printf '{"event":"tra'; } >"$run/metrics.jsonl"
    look
    has 'The training loss of 2 steps was not finite.' '1 line of metrics.jsonl could not be read' '|failed|'
    lacks loss_inf
    drawn loss | grep -qE '^M[^ML]*L[^ML]*M[^ML]*L[^ML]*$'
}

# 50 s for 10 of 100 steps: 90 steps take 450 s. Resumed at step 4 at 1030: 20 s for 6. Back at 8: 4 s for 2.
time_left() {
    local begun='{"event":"start","step":0,"steps":100,"t":1000}'
    for more in 'x 7 min 30 s' 'resume 5 min 00 s' 'rollback 3 min 00 s'; do
        begin
        { echo "$begun"
        case $more in resume*) echo '{"event":"resume","step":4,"steps":100,"t":1030}' ;; rollback*) echo '{"event":"rollback","step":8,"t":1046}' ;; esac
        train 10 10 ',"t":1050'; } >"$run/metrics.jsonl"
        look 's/"running":false/"running":true/'
        has '|running|' "about |${more#* }| left" 'step |10| of |100|, 10.0%' 'this page was written '
    done
    begin
    { train 1 2; echo '{"event":"val","step":2,"tokens":1234567,"val_loss":2,"seconds":7325}'; echo '{"event":"end","step":2,"val_loss":null}'; } >"$run/metrics.jsonl"
    look
    has '|time of training|2 h 02 min|' '|tokens seen|1.23M|' '|stopped|' '|validation loss|2.0000|'
    begin && look
    has '|empty|' 'there is no metrics.jsonl in this folder' '|No training step yet.|'
    lacks '|Loss|'
    look 's/script-src .unsafe-inline.//' 2>/dev/null || true # scripts are off
    grep -qE 'Refused|violates' "$work/browser"
    grep -q '<noscript>.*needs its own script' "$work/dom"
}

many() {
    begin
    { train 1 1
        for i in $(seq 300); do echo "{\"event\":\"warn\",\"step\":$i,\"text\":\"slow\"}"; done
        for i in $(seq 80); do echo "{\"event\":\"save\",\"step\":$i}"; done
        for i in $(seq 60); do echo "{\"event\":\"sample\",\"step\":$i,\"text\":\"short\"}"; done; } >"$run/metrics.jsonl"
    look
    has 'The newest 50 saves of 80 and 200 other events of 300;' '24 of 60, the newest first' '|step 60|' '|step 1|'
    [ "$(grep -o '|warn|' "$work/text" | wc -l)" = 200 ] && [ "$(grep -o '<tr class="bad">' "$work/dom" | wc -l)" = 200 ]
    [ "$(grep -o '|save|' "$work/text" | wc -l)" = 50 ] && [ "$(grep -o '|short|' "$work/text" | wc -l)" = 24 ]
    begin
    train 1 5000 >"$run/metrics.jsonl" # more than PAGE_GROUPS: a curve of means too
    look
    has 'Of 5000 lines of metrics.jsonl the page has '
    [ "$(drawn loss | wc -l)" = 2 ] && [ "$(points loss 2)" = 625 ]
}

# Steps 1 and 2 are 10 20 30 of a mean of 20: all between half and twice; then the second has three times the mean.
experts() {
    begin
    { train 1 1; for i in 1 2 3 4 5; do
        [ $i -lt 3 ] && slots='10 20 30' || slots='0 60 0'
        echo "{\"event\":\"experts\",\"step\":$i,\"name\":\"layers.0\",\"load_max\":1.5,\"load_min\":0.25,\"entropy\":0.9,\"idle\":1,\"text\":\"$slots\"}"
        echo "{\"event\":\"experts\",\"step\":$i,\"name\":\"layers.<1>\",\"load_max\":2.5,\"load_min\":0.5,\"entropy\":0.$((94 + i / 5)),\"idle\":1,\"z_loss\":0.5,\"text\":\"10 10 40\"}"
    done; } >"$run/metrics.jsonl"
    look
    has '|layers.&lt;1&gt;|2.5|0.5|1|0.95|' '|largest 2.5|smallest 0.25|' '|lowest 0.9|' '|experts without a token, all layers| 2|' '|z 0.5|'
    grep -qF '<path class="l0" d="M2 0h3v1h-3zM2 2h3v1h-3z"></path><path class="l1" d=""></path><path class="l2" d="M0 0h2v1h-2zM0 1h2v1h-2zM0 2h2v1h-2z"></path><path class="l3" d="M2 1h3v1h-3z"></path><path class="l4" d=""></path>' "$work/dom"
    { train 1 1; awk 'BEGIN { for (e = 0; e < 300; e++) slots = slots (e == 299 ? "99 " : e == 5 ? "0 " : "2 ")
        for (i = 1; i <= 100; i++) for (l = 0; l < 20; l++) printf "{\"event\":\"experts\",\"step\":%d,\"name\":\"layers.%d\",\"load_max\":2,\"text\":\"%s\"}\n", i, l, slots }'; } >"$run/metrics.jsonl"
    look
    [ "$(grep -o 'viewBox="0 0 25 60"' "$work/dom" | wc -l)" = 12 ] # 4 lines a column, 5 experts a row
    [ "$(grep -oF '<path class="l0" d="M0 1h25v1h-25z"></path>' "$work/dom" | wc -l)" = 12 ] # expert 5
    has 'Neighbours share a row'
}

# F0 on stage 0 from 100 to 110 us, B3 on stage 1 from 110 to 130: half of two stages' 30 us is idle.
pipeline() {
    begin
    train 1 1 >"$run/metrics.jsonl"
    echo '{"traceEvents":[{"ph":"M","name":"F"},{"ph":"X","name":"F0","ts":100,"dur":10,"tid":0,"args":{"micro":0}},{"ph":"X","name":"<b>","ts":0,"dur":1,"tid":0},{"ph":"X","name":"F","ts":0,"dur":1,"tid":9999},{"ph":"X","name":"B3","ts":110,"dur":20,"tid":1,"args":{"micro":3}}]}' >"$run/trace.json"
    look
    has '|0.030| ms; ' '|50.0%| of the stages' '|stage 1|' '|F0: 0.010 ms|' '|B3: 0.020 ms|'
    grep -qF '<rect class="B" x="373.33" y="26" width="626.07" height="20">' "$work/dom"
    echo '{"traceEvents":[]}' >"$run/trace.json"
    look
    lacks 'Pipeline'
}

# A name, a sample, keys, events and settings that are HTML are shown as text, and none of it runs.
hostile() {
    local bad="</title></script><script>document.title = 'run by it'</script><img src=x onerror=alert(2)>"
    begin
    { echo "{\"event\":\"start\",\"step\":0,\"name\":\"$bad\",\"text\":\"$bad\",\"mem_<b>\":9,\"t\":\"<b>\"}"
        train 1 2 ',"<s>&\"x\":1' | sed 's/\&"x/\&\\"x/'
        echo "{\"event\":\"sample\",\"step\":2,\"text\":\"$bad\\u0007\"}"
        echo "{\"event\":\"val\",\"step\":2,\"val_loss\":\"<u>\",\"val_<u>\":2.5,\"__proto__\":3,\"constructor\":4}"
        echo '{"event":"experts","step":"x","name":"<i>","text":"1 <b> 2","load_max":"<b>"}' '{"event":7}' '{"event":"task","step":null,"name":["<b>"],"acc":"x"}'
        echo "{\"event\":\"<b>new</b>\",\"step\":2,\"text\":\"$bad\"}"; } >"$run/metrics.jsonl"
    printf '[run]\nname = "%s"\n[<p>]\nx<y>z = 3\nq = "\nbad\377 = "\303\n' "$bad" >"$run/config.toml"
    look
    local shown='&lt;/title&gt;&lt;/script&gt;&lt;script&gt;document.title'
    has "|$shown" '|&lt;b&gt;new&lt;/b&gt;|' '|val_&lt;u&gt;|2.5|2|' '|&lt;s&gt;&amp;"x|' '|&lt;p&gt;.x&lt;y&gt;z|3|'
    [ "$(grep -o "$shown" "$work/text" | wc -l)" -ge 6 ]
    if grep -qE '<(img|u|s|i)[ >]x|<title>run by' "$work/dom"; then return 1; fi
}

passes 'numbers of a run, and its settings' numbers
passes 'sets, tasks, and keys without a place of their own' named
passes 'rates over time, and gaps' rates_and_gaps
passes 'states, the time left, and no script' time_left
passes 'many events, samples and steps' many
passes 'experts and their loads' experts
passes 'the timeline of a pipeline' pipeline
passes 'hostile text' hostile
exit "$failed"

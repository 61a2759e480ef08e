// test/test_book.js BOOK: the book's search (test/test_book.sh).
// test/test_book.js BOOK BUILD N: its tools against the programs, on N random settings each.
'use strict';
const fs = require('fs'), vm = require('vm'), {spawnSync} = require('child_process');
const [book, build, n] = [process.argv[2], process.argv[3], +process.argv[4] || 100];
let seed = 7, failed = 0, refused = 0;
const random = most => (seed = (seed * 1103515245 + 12345) % 2147483648, Math.floor(seed / 2147483648 * most));
const pick = list => list[random(list.length)];

function load(tool) {
    const context = vm.createContext({WebAssembly, TextDecoder, Uint8Array, Float64Array, Math, Array, Number, String, Error});
    for (const file of [tool + '.wasm.js', tool + '.js']) vm.runInContext(fs.readFileSync(`${book}/${file}`, 'utf8'), context);
    return {context, module: new WebAssembly.Module(Buffer.from(vm.runInContext('book_wasm', context), 'base64'))};
}
// A program prints few digits.
const near = (printed, x) => Math.abs(printed - x) <= 6e-4 * Math.abs(x) + 1e-9;
function differ(what) { if (failed++ < 20) console.log(what); }

function pipelines() {
    const {context, module} = load('pipeline_tool'), names = vm.runInContext('pipeline_schedules', context);
    for (let i = 0; i < n; i++) {
        const o = {schedule: pick(names), stages: 1 + random(12), micro: 1 + random(32), chunks: 2 + random(4),
            f: (1 + random(12)) / 4, b: (1 + random(12)) / 4, w: random(12) / 4, p2p: pick([0, 0, .1, .5, 1])};
        if (o.schedule == 'interleaved' && random(8)) o.micro = o.stages * (1 + random(4));
        const args = [o.schedule, '--stages', o.stages, '--micro', o.micro, '--times', `${o.f},${o.b},${o.w},${o.p2p}`, '--check'];
        if (o.schedule == 'interleaved') args.push('--chunks', o.chunks);
        const run = spawnSync(`${build}/pipeline`, args.map(String), {encoding: 'utf8'});
        let r = null, why = '';
        try { r = context.pipeline_compute(module, o); } catch (error) { why = error.message; }
        if ((run.status == 0) != !!r) { differ(`pipeline ${args.join(' ')}: status ${run.status} ${run.stderr} here: ${why}`); continue; }
        if (!r) {
            refused++;
            if (!run.stderr.includes(why)) differ(`pipeline ${args.join(' ')}: ${run.stderr} here: ${why}`);
            continue;
        }
        const said = run.stdout.trim().split('\n').pop();
        const of = word => +new RegExp(word + ' ([0-9.e+-]+)').exec(said)[1];
        const rows = run.stdout.split('\n').filter(l => /^ +[0-9]+  [0-9,]+ /.test(l)).map(l => l.trim().split(/ +/));
        const sent = rows.reduce((sum, row) => sum + +row[5], 0);
        const actions = rows.reduce((sum, row) => sum + +row[2], 0);
        if (!near(of('length'), r.length) || !near(of('bubble'), r.bubble) || !near(of('last action'), Math.abs(r.gaps) < 1e-12 ? 0 : r.gaps) ||
            !near(of('activations'), r.held) || sent != r.sent || actions != r.spans.length)
            differ(`pipeline ${args.join(' ')}: ${said}, ${sent} sends, ${actions} actions; here ${JSON.stringify({...r, spans: r.spans.length})}`);
    }
    if (refused > n / 2) differ(`pipeline: ${refused} of ${n} settings are refused`);
}

function plans() {
    const {context, module} = load('plan_tool'), presets = vm.runInContext('book_presets', context), names = vm.runInContext('plan_names', context);
    const power = most => 2 ** random(most);
    let counted = 0;
    for (let i = 0; i < n; i++) {
        const name = pick(Object.keys(presets).filter(p => !p.startsWith('bench-'))); // those set a batch
        const model = presets[name], o = {name, model, layers: model.layers, channels: model.channels,
            context: model.context, tp: power(4), pp: power(4), cp: random(3) ? 1 : power(3), sp: random(4) > 0, zero: random(4), micro: power(4),
            schedule: pick(names.schedule), recompute: pick(names.recompute), precision: random(4) ? 'bf16' : 'tf32'};
        if (!random(3)) o.layers = 1 + random(100);
        if (!random(3)) o.channels = model.heads * 2 * (1 + random(100));
        if (!random(3)) o.context = 512 * power(6);
        o.gpus = o.tp * o.pp * o.cp * power(7);
        o.batch = o.micro * power(7) * o.gpus / (o.tp * o.pp * o.cp);
        const run = spawnSync(build + '/plan', [...context.plan_command(o).split(' ').slice(1), '--json'], {encoding: 'utf8'});
        let r = null, why = '';
        try { r = context.plan_compute(module, o); } catch (error) { why = error.message; }
        const full = /memory: ([0-9.]+) GB on stage ([0-9]+)'s ranks/.exec(run.stderr); // possible, but more than an H100 has
        if (full && r) {
            counted++;
            if (Math.abs(full[1] - r.total / 1e9) > 0.0501 || full[2] != r.stage) differ(`${context.plan_command(o)}: ${full[0]}, here ${JSON.stringify(r)}`);
            continue;
        }
        if ((run.status == 0) != !!r) { differ(`${context.plan_command(o)}: status ${run.status} ${run.stderr} here: ${why}`); continue; }
        if (!r) {
            if (!run.stderr.includes(why)) differ(`${context.plan_command(o)}: ${run.stderr} here: ${why}`);
            continue;
        }
        counted++;
        const memory = /"memory": ([0-9.e+-]+)/.exec(run.stdout)[1] * 1e9;
        if (!(Math.abs(memory - r.total) <= 1e-9 * memory)) differ(`${context.plan_command(o)}: ${memory} bytes, here ${JSON.stringify(r)}`);
    }
    if (counted < n / 4) differ(`plan: only ${counted} of ${n} settings are possible`);
}

// Each term of the glossary leads to its own chapter first, also in capitals and with other signs between its words; a
// word that begins a term finds it; other words find sections, and names with a dot files.
function searches() {
    const window = {}, document = {currentScript: {dataset: {up: ''}}, documentElement: {dataset: {}}, addEventListener() {}};
    const context = vm.createContext({window, document});
    for (const file of ['search_index.js', 'book.js']) vm.runInContext(fs.readFileSync(`${book}/${file}`, 'utf8'), context);
    window.book_index = vm.runInContext('book_index', context);
    const first = query => (context.book_search(query, 30)[0] || {}).page;
    const rows = fs.readFileSync('doc/glossary.md', 'utf8').split('\n').map(l => /^\| ([^|]+) \|.*\]\(([a-z0-9_]+)\.md(#[^)]*)?\) \|$/.exec(l)).filter(r => r);
    if (rows.length < 100) differ(`only ${rows.length} terms`);
    for (const [, term, chapter, at] of rows)
        for (const query of [term, term.toUpperCase().replace(/[ -]/g, '  ')])
            if (first(query) != `${chapter}.html${at || ''}`) differ(`${query}: ${first(query)}, should be ${chapter}.html${at || ''}`);
    if (!context.book_search('ring att', 30).some(f => f.title == 'ring attention')) differ('ring att does not find the term');
    if (first('checkpoint that every rank') == first('checkpoint')) differ('a sentence is taken for a term');
    if (first('pipeline_table.c') != 'code/src/parallel/pipeline_table.c.html') differ(`pipeline_table.c: ${first('pipeline_table.c')}`);
}

if (build) pipelines(), plans();
else searches();
if (failed) console.log(`${failed} differ`);

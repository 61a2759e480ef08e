// test/test_book.js BOOK BUILD N: the book's tools against the programs, on N random settings each (test/test_book.sh).
'use strict';
const fs = require('fs'), vm = require('vm'), {spawnSync} = require('child_process');
const [book, build, n] = [process.argv[2], process.argv[3], +process.argv[4]];
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

pipelines();
if (failed) console.log(`${failed} differ`);

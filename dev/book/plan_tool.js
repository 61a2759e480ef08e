// plan_tool.js: the page try_plan.html. Everything that is computed comes from plan_tool.c; test/test_book.js loads this file
// too, and compares with build/plan. The models are those of scripts/presets (tools.sh).
'use strict';
const plan_names = {
    schedule: ['gpipe', '1f1b', 'interleaved', 'zb-h1', 'zb-v', 'v-half', 'v-min'],
    recompute: ['none', 'selective', 'attention', 'sqrt', 'full'],
};

// o: model (keys of a preset's section [model]), layers, channels, context, gpus, tp, pp, cp, sp, schedule, zero, micro, batch,
// recompute, precision
function plan_compute(module, o) {
    const instance = new WebAssembly.Instance(module, {env: {exp: Math.exp, log: Math.log, pow: Math.pow, book_die: at => {
        const bytes = new Uint8Array(instance.exports.memory.buffer, at);
        throw new Error(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))));
    }}});
    const c = instance.exports, m = o.model, two = !['gpipe', '1f1b', 'zb-h1'].includes(o.schedule);
    new Float64Array(c.memory.buffer, c.settings(), 24).set([o.layers, o.channels, m.heads, m.kv_heads || m.heads,
        m.ffn ? Math.round(m.ffn * o.channels / m.channels) : 4 * o.channels, m.vocab, o.context, m.norm == 'rmsnorm', m.activation == 'swiglu',
        m.position == 'rope', m.bias, m.tie, o.gpus, o.tp, o.pp, o.cp, o.sp, plan_names.schedule.indexOf(o.schedule), two ? 2 : 1, o.zero, o.micro, o.batch,
        plan_names.recompute.indexOf(o.recompute), o.precision == 'bf16' ? 2 : 4].map(Number));
    const at = c.compute(), r = [...new Float64Array(c.memory.buffer, at, 9)]; // the memory may have grown
    return {stage: r[0], parameters: r[1], gradients: r[2], optimizer: r[3], activations: r[4], scratch: r[5], communication: r[6], total: r[7], model: r[8]};
}

function plan_command(o) {
    let s = `build/plan time ${o.name} --gpus ${o.gpus} --tp ${o.tp} --pp ${o.pp} --cp ${o.cp} --zero ${o.zero} --micro ${o.micro} --batch ${o.batch}` +
        ` --recompute ${o.recompute} --schedule ${o.schedule}`;
    if (o.layers != o.model.layers) s += ` --model.layers=${o.layers}`;
    if (o.context != o.model.context) s += ` --model.context=${o.context}`;
    if (o.channels != o.model.channels) {
        s += ` --model.channels=${o.channels}`;
        if (o.model.ffn) s += ` --model.ffn=${Math.round(o.model.ffn * o.channels / o.model.channels)}`;
    }
    if (o.precision == 'tf32') s += ' --numerics.dtype=tf32';
    if (!o.sp) s += ' --no-sp';
    return s;
}

function plan_svg(r) {
    const parts = ['parameters', 'gradients', 'optimizer', 'activations', 'scratch', 'communication'], wide = 820;
    const colour = ['#2563a8', '#d1571b', '#2f7d4f', '#7b4ab5', '#a8780c', '#0f8a94'], cards = [[24, 'A10G'], [80, 'H100'], [141, 'H200'], [192, 'B200']];
    const most = Math.max(100, r.total / 1e9 * 1.05), x = gb => 4 + gb / most * (wide - 60);
    let at = 0, s = `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${120 + 22 * parts.length}" font-family="system-ui, sans-serif" font-size="12">`;
    parts.forEach((part, i) => {
        const gb = r[part] / 1e9;
        s += `<rect x="${x(at).toFixed(1)}" y="26" width="${(x(at + gb) - x(at)).toFixed(1)}" height="40" fill="${colour[i]}"/>` +
            `<rect x="4" y="${96 + 22 * i}" width="12" height="12" fill="${colour[i]}"/>` +
            `<text x="24" y="${107 + 22 * i}" fill="currentColor">${part}</text><text x="200" y="${107 + 22 * i}" text-anchor="end" fill="currentColor">${gb.toFixed(3)} GB</text>`;
        at += gb;
    });
    for (const [gb, name] of cards)
        if (gb < most) s += `<path d="M${x(gb).toFixed(1)} 20v52" stroke="currentColor" stroke-dasharray="3 3"/>` +
            `<text x="${x(gb).toFixed(1)}" y="14" text-anchor="middle" fill="currentColor">${name}, ${gb} GB</text>`;
    return s + '</svg>';
}

async function plan_page() {
    const bytes = Uint8Array.from(atob(book_wasm), c => c.charCodeAt(0)), module = await WebAssembly.compile(bytes);
    const form = document.getElementById('dials'), said = document.getElementById('said'), drawing = document.getElementById('drawing');
    for (const name in book_presets) form.elements.model.append(new Option(name, name, name == 'llama2-7b', name == 'llama2-7b'));
    const adopt = () => {
        const m = book_presets[form.elements.model.value];
        form.elements.layers.value = m.layers;
        form.elements.channels.step = m.heads * 2;
        form.elements.channels.min = m.heads * 2;
        form.elements.channels.value = m.channels;
        form.elements.context.value = Math.log2(m.context);
    };
    const draw = () => {
        const o = {};
        for (const input of form.elements) {
            if (!input.name) continue;
            o[input.name] = input.dataset.power ? 2 ** input.value : input.type == 'range' ? +input.value : input.value;
            input.parentNode.querySelector('output').textContent = input.type == 'range' ? o[input.name] : '';
        }
        o.name = o.model, o.model = book_presets[o.name], o.sp = o.sp == 'yes';
        o.batch = o.steps * o.micro * Math.max(1, Math.floor(o.gpus / (o.tp * o.pp * o.cp)));
        document.getElementById('command').textContent = plan_command(o);
        try {
            const r = plan_compute(module, o);
            said.className = '';
            said.innerHTML = `<b>${(r.total / 1e9).toFixed(2)} GB</b> on the fullest accelerator, of stage ${r.stage}; the model has <b>${(r.model / 1e9).toFixed(3)} billion</b> parameters.`;
            drawing.innerHTML = plan_svg(r);
        } catch (error) {
            said.className = 'bad';
            said.textContent = error.message;
            drawing.replaceChildren();
        }
    };
    form.elements.model.addEventListener('change', adopt);
    form.addEventListener('input', draw);
    form.addEventListener('change', draw);
    adopt();
    draw();
}
if (typeof document != 'undefined') plan_page();

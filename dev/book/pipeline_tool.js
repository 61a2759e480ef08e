// pipeline_tool.js: the page try_pipeline.html. Everything that is computed comes from pipeline_tool.c; test/test_book.js
// loads this file too, and compares with build/pipeline.
'use strict';
const pipeline_schedules = ['gpipe', '1f1b', 'interleaved', 'zb-h1', 'zb-v', 'v-half', 'v-min'];

// In a fresh instance: what the C code leaves, and its memory, last for one call.
function pipeline_compute(module, o) {
    const instance = new WebAssembly.Instance(module, {env: {book_die: at => {
        const bytes = new Uint8Array(instance.exports.memory.buffer, at);
        throw new Error(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))));
    }}});
    const numbers = (at, n) => [...new Float64Array(instance.exports.memory.buffer, at, n)], c = instance.exports;
    const [length, bubble, gaps, held, sent, chunks] = numbers(c.compute(pipeline_schedules.indexOf(o.schedule), o.stages, o.micro,
        o.schedule == 'interleaved' ? o.chunks : 0, o.f, o.b, o.w, o.p2p), 6);
    const spans = Array.from({length: c.spans()}, (_, i) => numbers(c.span(i), 6));
    return {length, bubble, gaps, held, sent, chunks, spans};
}

function pipeline_svg(o, r) {
    const left = 62, row = 22, wide = Math.max(680, Math.min(3200, r.spans.length / o.stages * 13)), unit = (wide - left - 10) / r.length;
    const colour = ['#2563a8', '#2f7d4f', '#d1571b'];
    let s = `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${o.stages * row + 30}" font-family="system-ui, sans-serif" font-size="11">`;
    for (let i = 0; i < o.stages; i++) s += `<text x="0" y="${i * row + 15}" fill="currentColor">stage ${i}</text>`;
    for (const [stage, op, micro, chunk, start, end] of r.spans) {
        const x = left + start * unit, w = (end - start) * unit, fade = r.chunks > 1 ? 1 - .6 * chunk / (r.chunks - 1) : 1;
        if (!(w > 0)) continue;
        s += `<rect x="${x.toFixed(2)}" y="${stage * row + 1}" width="${Math.max(.5, w - .8).toFixed(2)}" height="${row - 3}" fill="${colour[op]}" opacity="${fade.toFixed(2)}"/>`;
        if (w > 6 * String(micro).length + 3)
            s += `<text x="${(x + w / 2).toFixed(2)}" y="${stage * row + 15}" text-anchor="middle" fill="${fade < .6 ? 'currentColor' : '#fff'}">${micro}</text>`;
    }
    const step = 10 ** Math.floor(Math.log10(r.length)) / (r.length / 10 ** Math.floor(Math.log10(r.length)) < 3 ? 5 : 1);
    for (let t = 0; t <= r.length; t += step)
        s += `<text x="${(left + t * unit).toFixed(1)}" y="${o.stages * row + 20}" text-anchor="middle" fill="currentColor" opacity=".7">${+t.toPrecision(6)}</text>`;
    return s + '</svg>';
}

async function pipeline_page() {
    const bytes = Uint8Array.from(atob(book_wasm), c => c.charCodeAt(0)), module = await WebAssembly.compile(bytes);
    const form = document.getElementById('dials'), said = document.getElementById('said'), drawing = document.getElementById('drawing');
    const draw = () => {
        const o = {};
        for (const input of form.elements) {
            if (!input.name) continue;
            o[input.name] = input.type == 'range' ? +input.value : input.value;
            input.parentNode.querySelector('output').textContent = input.type == 'range' ? input.value : '';
        }
        form.elements.chunks.disabled = o.schedule != 'interleaved';
        document.getElementById('command').textContent = `build/pipeline ${o.schedule} --stages ${o.stages} --micro ${o.micro}` +
            (o.schedule == 'interleaved' ? ` --chunks ${o.chunks}` : '') + ` --times ${o.f},${o.b},${o.w},${o.p2p}`;
        try {
            const r = pipeline_compute(module, o);
            said.className = '';
            said.innerHTML = `Length <b>${+r.length.toPrecision(5)}</b>, bubble <b>${(100 * r.bubble).toFixed(1)}%</b>; the fullest stage holds the activations of ` +
                `<b>${+r.held.toPrecision(4)}</b> micro-batch${r.held == 1 ? '' : 'es'} for its layers; <b>${r.sent}</b> messages between stages.`;
            drawing.innerHTML = pipeline_svg(o, r);
        } catch (error) {
            said.className = 'bad';
            said.textContent = error.message;
            drawing.replaceChildren();
        }
    };
    form.addEventListener('input', draw);
    draw();
}
if (typeof document != 'undefined') pipeline_page();

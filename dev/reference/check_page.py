#!/usr/bin/env python3
"""Does a browser show a run's report.html as it should?

Trains a small run (two ranks, with its pipeline's timeline, eval.sets and eval.tasks), stops and resumes it, and looks at
one that goes on. A headless Chromium opens each page, with a script put in front of it that counts errors, and one at
its end that looks and clicks (test/test_page.sh looks at pages of runs made by hand, and of hostile ones):

- no error, no message on the console, no load of anything;
- every section is there, every chart has curves, axis labels and its last number;
- dragging across the loss chart zooms every chart: the axes change, the curves of the zoomed steps remain, and a double
  click brings the whole run back; so do the buttons;
- moving over a chart writes the number of that step, as metrics.jsonl has it.

With --shots DIR it also keeps pictures: light, dark, zoomed, narrow.

Run: python3 dev/reference/check_page.py [--shots DIR]   (chromium on PATH, mpiexec; build/ must exist)
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FIRST = """<script>window.faults = [];
addEventListener('error', e => faults.push('error: ' + e.message), true);
addEventListener('securitypolicyviolation', e => faults.push('load: ' + e.blockedURI));</script>"""

LAST = """<pre id="verdict"></pre><script>{
const out = { faults, sections: [...document.querySelectorAll('section')].map(s => s.id), charts: {} };
const svgs = [...document.querySelectorAll('figure svg')];
const axis = svg => [...svg.querySelectorAll('text')].map(t => t.textContent + '@' + Math.round(t.getAttribute('y'))).join(' ');
const state = () => svgs.map(axis);
for (const svg of svgs) {
  const keys = svg.parentNode.dataset.keys, box = svg.getBoundingClientRect();
  out.charts[keys] = { paths: svg.querySelectorAll('path[d^="M"]').length, labels: axis(svg), width: box.width, height: box.height,
    caption: svg.parentNode.querySelector('figcaption').textContent };
}
const loss = svgs[0], box = loss.getBoundingClientRect();
const fire = (kind, x) => loss.dispatchEvent(new PointerEvent(kind, { clientX: box.left + x * box.width, clientY: box.top + 60, pointerId: 1, bubbles: true }));
loss.setPointerCapture = () => {};
out.whole = state();
fire('pointermove', 0.5);
out.hover = loss.parentNode.querySelector('figcaption').textContent;
fire('pointerdown', 0.4); fire('pointermove', 0.6); fire('pointerup', 0.6);
out.zoomed = state();
out.zoomedPaths = loss.querySelectorAll('path[d^="M"]').length;
if (!location.hash) {
  loss.dispatchEvent(new MouseEvent('dblclick', { bubbles: true }));
  out.back = state();
  document.querySelector('button[data-span="0.1"]').click();
  out.tenth = state();
  document.querySelector('button[data-span="1"]').click();
  document.getElementById('log').click();
  out.log = state();
  document.getElementById('log').click();
}
out.state = document.querySelector('h1').textContent;
out.age = document.getElementById('age').textContent;
out.loads = performance.getEntriesByType('resource').length;
out.wide = document.documentElement.scrollWidth - innerWidth;
document.getElementById('verdict').textContent = 'VERDICT' + encodeURIComponent(JSON.stringify(out)) + 'END';
}</script>"""


def program(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", **more)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


def browser(folder, *words):
    done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                           "--enable-logging=stderr", "--v=0", f"--user-data-dir={folder}/browser", *words],
                          capture_output=True, text=True, timeout=120)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console


def look(folder, run, size="1280,900"):
    """What the page says of itself, after the script at its end has used it."""
    html = open(f"{run}/report.html", encoding="utf-8").read()
    html = html.replace('<meta charset="utf-8">', '<meta charset="utf-8">' + FIRST).replace("</body>", LAST + "</body>")
    path = f"{folder}/looked.html"
    open(path, "w", encoding="utf-8").write(html)
    dom, console = browser(folder, f"--window-size={size}", "--dump-dom", f"file://{path}")
    found = re.search(r"VERDICT(%7B.*?)END", dom)
    assert found, f"{run}: the script at the end did not end\n{console}"
    from urllib.parse import unquote
    out = json.loads(unquote(found.group(1)))
    assert not out["faults"] and not console, (run, out["faults"], console)
    assert out["loads"] == 0, out
    return out


def check_charts(out):
    for keys, chart in out["charts"].items():
        assert chart["paths"] >= 1 and chart["width"] > 300 and chart["height"] > 100, (keys, chart)
        assert len(chart["labels"].split()) >= 4, (keys, chart)
        assert re.search(r"\d", chart["caption"]), (keys, chart)
    assert out["zoomed"] != out["whole"] and all(a != b for a, b in zip(out["zoomed"], out["whole"])), "zoom"
    assert out["zoomedPaths"] >= 1
    assert out["back"] == out["whole"] and out["tenth"] != out["whole"] and out["log"][0] != out["whole"][0]
    assert out["log"][1:] == out["whole"][1:]


def check_real(folder, run):
    out = look(folder, run)
    want = ["loss", "evaluation", "speed", "time", "memory", "pipeline", "samples", "events", "settings"]
    assert out["sections"] == want, out["sections"]
    check_charts(out)
    assert list(out["charts"])[0] == "loss,val_loss,val_loss other" and "acc story" in out["charts"], out["charts"].keys()
    rows = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    loss = {r["step"]: r["loss"] for r in rows if r["event"] == "train"}
    value, step = re.search(r"training ([\d.]+) at (\d+)", out["hover"]).groups()
    assert abs(loss[int(step)] - float(value)) <= 0.5e-4 * loss[int(step)], (step, value, loss[int(step)])
    assert 0.4 * max(loss) < int(step) < 0.6 * max(loss)
    narrow = look(folder, run, "420,800")
    assert narrow["wide"] <= 0, f"{narrow['wide']} pixels too wide for a telephone"
    print(f"{os.path.basename(run)}: {len(out['sections'])} sections, {len(out['charts'])} charts, no error; "
          f"loss {value} at step {step}; zoom, buttons")


def going_on(folder, train):
    """The page of a run while it goes on: it says so, and how old it is."""
    run = f"{folder}/long"
    process = subprocess.Popen([*train, "--run.name=long", "--run.steps=100000", "--run.eval_every=20"],
                               stdout=subprocess.DEVNULL)
    report = f"{run}/report.html"
    while process.poll() is None and not (os.path.exists(report) and '"event":"train"' in open(report).read()):
        time.sleep(0.2)
    out = look(folder, run)
    process.send_signal(2)
    assert process.wait() == 0
    assert re.search(r"running$", out["state"]) and re.search(r"written \d+ s ago", out["age"]), (out["state"], out["age"])
    assert look(folder, run)["state"].endswith("stopped")
    print("long: running, then stopped")


def shots(folder, run, where):
    os.makedirs(where, exist_ok=True)
    page = f"file://{os.path.abspath(run)}/report.html"
    dark = "--blink-settings=preferredColorScheme=0"
    for name, size, more in (("light", "1366,768", []), ("dark", "1366,768", [dark]), ("whole", "1280,4200", []),
                             ("narrow", "420,2000", [])):
        browser(folder, f"--window-size={size}", *more, f"--screenshot={where}/{name}.png", page)
    browser(folder, "--window-size=1366,768", f"--screenshot={where}/zoomed.png", f"file://{folder}/looked.html#zoomed")
    print(f"pictures in {where}")


def main():
    if not BROWSER:
        sys.exit("check_page: no chromium (apt-get install chromium)")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    with tempfile.TemporaryDirectory() as folder:
        program(["build/stories", "--bytes", "200000", "--seed", "3", "--out", folder])
        program(["build/prepare", "tokens", "--train", f"{folder}/train.txt", "--val-file", f"{folder}/val.txt", "--vocab",
                 "512", "--out", folder])
        with open(f"{folder}/story.jsonl", "w") as f:
            f.write('{"goal": "Long ago", "sol1": "there lived a girl", "sol2": "girl a lived there", "label": 0}\n' * 20)
        train = ["build/train", "tiny", f"--run.dir={folder}", f"--data.train={folder}/train_*.bin",
                 f"--data.val={folder}/val_*.bin", f"--data.tokenizer={folder}", "--eval.tokens=1000"]
        piped = ["mpiexec", "-n", "2", *train, "--run.name=piped", "--run.steps=120", "--parallel.pp=2", "--batch.micro=2",
                 "--run.trace=9", "--run.eval_every=20", "--run.sample_every=40", "--eval.tasks_every=30",
                 f"--eval.tasks=story={folder}/story.jsonl", f"--eval.sets=other={folder}/train_*.bin"]
        program([*piped, "--run.stop_at=70"])
        program([*piped, "--ckpt.resume=true"])
        check_real(folder, f"{folder}/piped")
        going_on(folder, train)
        if "--shots" in sys.argv:
            look(folder, f"{folder}/piped")
            shots(folder, f"{folder}/piped", sys.argv[sys.argv.index("--shots") + 1])
    print("ok")


main()

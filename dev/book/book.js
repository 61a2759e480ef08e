// book.js: the search, and the switch between light and dark. Every page of the book has it in its head.
//
// The words are in search_index.js, which is loaded when somebody first searches. All words must be in a section, the last
// one as a beginning. A term of the glossary leads to its own chapter first. A page opened with ?q=WORDS searches at once.
'use strict';
const book_up = document.currentScript.dataset.up;
try { document.documentElement.dataset.light = localStorage.getItem('light') || ''; } catch (e) { /* no storage */ }

function book_load(then) {
    if (window.book_index) return then();
    const script = document.createElement('script');
    script.src = book_up + 'search_index.js';
    script.onload = then;
    document.head.append(script);
}

// The sections of a word, as a set of numbers.
function book_numbers(text, into) {
    let at = 0;
    for (const step of text.split(',')) into.add(at += parseInt(step, 36));
    return into;
}

function book_words(text) { return text.toLowerCase().split(/[^a-z0-9_]+/).filter(w => w); }

// Terms that are the query, or begin with it.
function book_terms(asked) {
    const query = book_words(asked).join(' '), of = t => book_words(t[0]).join(' ');
    const is = t => of(t) == query, begins = t => query.length > 2 && of(t).startsWith(query);
    return window.book_index.terms.filter(begins).sort((a, b) => is(b) - is(a)).slice(0, 4)
        .map(t => ({page: t[1], title: t[0], name: t[2]}));
}

// The terms; sections that have all the words, those with the words in their titles first; files with such names.
function book_search(query, most) {
    const words = book_words(query).filter(w => w.length > 1), index = window.book_index;
    if (!words.length) return [];
    let both = null;
    words.forEach((word, i) => {
        let has = new Set();
        if (i == words.length - 1) {
            for (const w in index.words) if (w.startsWith(word)) book_numbers(index.words[w], has);
        } else if (index.words[word]) book_numbers(index.words[word], has);
        else if (!index.words[word]) return; // a word of every page, or of none: it does not decide
        both = both ? new Set([...both].filter(n => has.has(n))) : has;
    });
    const found = [...(both || [])].map(n => {
        const [page, title, name] = index.sections[n - 1], low = [title.toLowerCase(), name.toLowerCase()];
        let score = page.startsWith('code/') ? -3 : 0;
        for (const w of words) score += 4 * low[0].includes(w) + 3 * low[1].includes(w) + 2 * page.startsWith(w);
        return {page, title, name, score: score - n / 1e5};
    }).sort((a, b) => b.score - a.score).slice(0, most);
    const named = query.trim().toLowerCase(), is = f => f[0].toLowerCase().endsWith('/' + named); // the whole name of a file
    const files = index.files.filter(f => words.every(w => f[0].toLowerCase().includes(w))).sort((a, b) => is(b) - is(a))
        .slice(0, 8).map(f => ({page: 'code/' + f[0] + '.html', title: f[0], name: f[1]}));
    return named.includes('.') ? files.concat(found) : [...book_terms(query), ...found, ...files];
}

function book_show(query) {
    const box = document.getElementById('found');
    box.replaceChildren();
    box.hidden = !query.trim();
    if (box.hidden) return;
    for (const hit of book_search(query, 30)) {
        const a = document.createElement('a'), small = document.createElement('small');
        a.href = book_up + hit.page;
        a.textContent = hit.title;
        small.textContent = hit.name ? ' \u203a ' + hit.name : '';
        a.append(small);
        box.append(a);
    }
    if (!box.firstChild) {
        const p = document.createElement('p');
        p.textContent = 'Nothing has all of these words.';
        box.append(p);
    }
}

document.addEventListener('DOMContentLoaded', () => {
    const input = document.getElementById('search'), box = document.getElementById('found');
    const go = () => book_load(() => book_show(input.value));
    input.addEventListener('input', go);
    input.addEventListener('focus', go);
    document.addEventListener('keydown', event => {
        if (event.key == 'Escape') box.hidden = true;
        if (event.key == '/' && document.activeElement != input) { event.preventDefault(); input.focus(); }
        if (event.key == 'Enter' && document.activeElement == input && box.querySelector('a')) location = box.querySelector('a').href;
    });
    document.addEventListener('click', event => { if (!box.contains(event.target) && event.target != input) box.hidden = true; });
    document.getElementById('light').addEventListener('click', () => {
        const root = document.documentElement, dark = getComputedStyle(root).colorScheme == 'dark';
        root.dataset.light = dark ? 'light' : 'dark';
        try { localStorage.setItem('light', root.dataset.light); } catch (e) { /* no storage */ }
    });
    const asked = new URLSearchParams(location.search).get('q');
    if (asked) { input.value = asked; go(); }
});

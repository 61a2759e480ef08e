// test/test_book.js BOOK: the book's search (test/test_book.sh).
'use strict';
const fs = require('fs'), vm = require('vm'), book = process.argv[2];
let failed = 0;
function differ(what) { if (failed++ < 20) console.log(what); }

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

searches();
if (failed) console.log(`${failed} differ`);

/* Order the results of the site's search: guides first, then explanations, references, and last the pages behind them.
   Sphinx counts whether a page has a word, not how much it is about it; so some words name their page. */
const PAGES_OF_WORDS = {
  dial: ["docs/evenness", "docs/choosing-evenness"],
  evenness: ["docs/evenness", "docs/choosing-evenness"],
  fairness: ["docs/trade-off", "docs/groups"],
  install: ["docs/installing"],
  gpu: ["docs/cuda"],
  ray: ["docs/cluster"],
};
const REFERENCE = /^docs\/(api|cli)/;
const BEHIND = /^(docs\/(decisions\/|architecture|performance|baselines|reproduction|what-works-figures|releasing)|benchmarks\/|CHANGELOG|CONTRIBUTING|SECURITY)/;

var Scorer = {
  score: ([page, , , , score]) => {
    const asked = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase().split(/\W+/);
    const own = asked.flatMap((word) => PAGES_OF_WORDS[word] || []);
    if (own.includes(page)) return score + 400 - 100 * own.indexOf(page);
    return score + (BEHIND.test(page) ? -200 : REFERENCE.test(page) ? -100 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

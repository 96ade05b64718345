// The documentation as pages, by VitePress: README.md, docs/*.md, and the files and folders of the repository that they
// link to. `make site` copies pages and this folder to build/.site, and builds build/site there.
// package-lock.json names no registry: npm install --package-lock-only, then sed -i '/"resolved":/d' package-lock.json.
// Its rollup is the one that runs everywhere, so that no machine needs a package that the file does not pin.
import fs from 'node:fs'
import path from 'node:path'

const here = path.resolve(import.meta.dirname, '..')

// Every page of docs/ stands in one group, a page by its name, what is none by a link.
const groups = {
  'Start': ['index', 'overview', 'tutorial', 'configuration', 'troubleshooting', 'coming-from', 'moving',
    'python'],
  'Experiments': ['sweeps', 'report', 'ui', 'figures', 'tracking', 'evaluation', 'partitions', 'datasets', 'results',
    'pitfalls', 'papers'],
  'Methods': ['methods', ['A method of your own', '/methods.html#a-method-of-your-own'], 'onnx-method', 'terms', 'robustness'],
  'Your own models': ['models', 'dropin', 'performance', 'measurements'],
  'Distributed and private': ['distributed', 'cluster', 'privacy', 'simulated-time',
    ['Files to deploy', '/source/docs/deploy.html']],
  'Developers': ['first-hour', 'architecture', 'CONTRIBUTING', 'formats', 'grad', 'programs',
    ['A method in its own module', '/source/docs/examples.html']],
}

// The file of a page, and the page of a file, both from the root of the repository.
const fileOf = page => page === 'index' ? 'README.md' : `docs/${page}.md`
const pageOf = file => file === 'README.md' ? 'index' : file.match(/^docs\/([^/]+)\.md$/)?.[1]

function sidebar() {
  const rest = new Set(fs.readdirSync(path.join(here, 'docs')).map(f => pageOf('docs/' + f)).filter(Boolean))
  const item = page => {
    if (typeof page !== 'string') return { text: page[0], link: page[1] }
    rest.delete(page)
    const title = fs.readFileSync(path.join(here, fileOf(page)), 'utf8').match(/^# (.*)$/m)[1]
    return { text: page === 'index' ? 'Overview' : title, link: page === 'index' ? '/' : `/${page}.html` }
  }
  const out = Object.entries(groups).map(([text, pages]) => ({ text, items: pages.map(item) }))
  if (rest.size) throw Error(`docs/site/.vitepress/config.mjs: no group has ${[...rest].join(', ')}`)
  return out
}

// Links are relative to the file that they stand in, as a code host follows them. Indented text is shown as fenced text.
function markdown(md) {
  md.core.ruler.push('repository', state => {
    for (const token of state.tokens.filter(t => t.type === 'code_block')) {
      const commands = /^(bin\/)?promptfed |^(make|go|npm|kubectl|helm|python3) /m.test(token.content)
      Object.assign(token, { type: 'fence', tag: 'code', info: commands ? 'sh' : 'txt' })
    }
    const dir = path.dirname(path.relative(here, state.env.realPath ?? state.env.path))
    for (const token of state.tokens.flatMap(t => t.children ?? []).filter(t => t.type === 'link_open')) {
      const [, target, fragment] = token.attrGet('href').match(/^([^#]*)(#.*)?$/)
      if (!target || /^([a-z]+:|\/)/.test(target)) continue
      const file = path.join(dir, decodeURI(target))
      token.attrSet('href', `/${pageOf(file) ?? 'source/' + file}.html${fragment ?? ''}`)
    }
  })
}

// A link or an image that leads nowhere fails the build, headings of pages too.
function check({ outDir }) {
  const pages = new Map(fs.readdirSync(outDir, { recursive: true }).filter(f => f.endsWith('.html')).map(f => {
    const text = fs.readFileSync(path.join(outDir, f), 'utf8')
    const all = attribute => [...text.matchAll(new RegExp(`<[^>]* ${attribute}="([^"]*)"`, 'g'))].map(m => m[1])
    return ['/' + f, { ids: new Set(all('id')), to: [...all('href'), ...all('src')] }]
  }))
  const bad = []
  for (const [page, { to }] of pages) {
    for (const link of to.filter(l => !/^[a-z]+:/.test(l))) {
      const { pathname, hash } = new URL(link, 'http://x' + page)
      const there = pages.get(pathname === '/' ? '/index.html' : pathname)
      const id = decodeURIComponent(hash.slice(1))
      if (there ? id && !there.ids.has(id) : !fs.existsSync(path.join(outDir, pathname))) bad.push(`${page}: ${link}`)
    }
  }
  if (bad.length) throw Error(`links that lead nowhere:\n${bad.join('\n')}`)
}

export default {
  title: 'promptfed',
  description: 'Federated prompt learning over frozen vision-language models',
  srcExclude: ['docs/*/**'],
  rewrites: id => pageOf(id) ? pageOf(id) + '.md' : id,
  outDir: '../site',
  markdown: {
    config: markdown,
    // headings are called as on a code host
    anchor: { slugify: h => h.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-') },
  },
  buildEnd: check,
  themeConfig: {
    sidebar: sidebar(),
    outline: [2, 3],
    search: { provider: 'local' },
  },
}

// What pages link to that is no page: the text of a file, the list of a folder's files and their texts.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '../../..')

function show(file) {
  if (statSync(path.join(root, file)).isFile()) {
    const text = readFileSync(path.join(root, file), 'utf8').trimEnd()
    const language = { '.mod': 'go', '.service': 'ini', '.tpl': 'go', '.sum': 'txt', '.env': 'ini' }[path.extname(file)] ?? path.extname(file).slice(1)
    return [{ params: { file }, content: `# ${file}\n\n\`\`\`\`${language}\n${text}\n\`\`\`\`\n` }]
  }
  const inside = readdirSync(path.join(root, file), { recursive: true }).map(f => path.join(file, f))
    .filter(f => statSync(path.join(root, f)).isFile()).sort()
  const list = inside.map(f => `- [${f}](/source/${f}.html)\n`).join('')
  return [{ params: { file }, content: `# ${file}\n\n${list}` }, ...inside.flatMap(show)]
}

export default {
  paths() {
    const found = new Set(['docs/deploy', 'docs/examples'])
    for (const page of ['README.md', ...readdirSync(path.join(root, 'docs')).map(f => 'docs/' + f)]) {
      if (!page.endsWith('.md')) continue
      for (const [, to] of readFileSync(path.join(root, page), 'utf8').matchAll(/\]\(([^)\s#]+)/g)) {
        const file = path.join(path.dirname(page), to)
        if (!/^[a-z]+:/.test(to) && !/\.(md|png)$/.test(to)) found.add(file)
      }
    }
    const all = [...found].flatMap(show)
    return [...new Map(all.map(p => [p.params.file, p])).values()]
  },
}

/**
 * @file Drives one browser for the tests: a command per line on standard input, as JSON, each
 * answered by a line on standard output.
 *
 *     node driver.mjs FOLDER_OF_PUPPETEER chrome|firefox PROGRAM
 */

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [, , folder, kind, program] = process.argv;
const puppeteer = createRequire(`${folder}/`)('puppeteer-core');
const options = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-dev-shm-usage',
  // A machine of this name on the network: no secure context without https.
  '--host-resolver-rules=MAP laptop.test 127.0.0.1',
];
const browser = await puppeteer.launch({
  browser: kind,
  executablePath: program,
  headless: true,
  args: kind === 'chrome' ? options : [],
  defaultViewport: null,
  protocolTimeout: 120_000,
});

let context;
let page;
let log = [];

/** Opens a page. A certificate that nobody vouches for is accepted as a person does it. */
async function visit(url) {
  await page.goto(url).catch(async (error) => {
    if (!String(error).includes('ERR_CERT')) throw error;
    const proceed = "document.querySelector('#proceed-link')";
    await commands.wait({ code: `${proceed}`, timeout: 10_000 });
    const arrived = page.waitForNavigation();
    await page.evaluate(`document.querySelector('#details-button').click(); ${proceed}.click()`);
    await arrived;
  });
}

const commands = {
  /** A page with nothing in any cache; the one before is closed. */
  async open({ url, width = 1280, height = 900, script, lasting = false }) {
    await (context === browser.defaultBrowserContext() ? page.close() : context?.close());
    // What is kept on disk, unlike in a profile for one page, has room for the runtime.
    context = lasting ? browser.defaultBrowserContext() : await browser.createBrowserContext();
    page = await context.newPage();
    log = [];
    page.on('pageerror', (error) => log.push(String(error.message ?? error)));
    page.on('console', (line) => line.type() === 'error' && log.push(line.text()));
    // Firefox 140 lacks a part of what this sends.
    if (kind === 'chrome') await page.setViewport({ width, height });
    if (script) await page.evaluateOnNewDocument(script);
    await visit(url);
  },
  /** Another page in the same profile, with a marker that a page before it left. */
  async open_again({ url, marker }) {
    page = await context.newPage();
    await page.evaluateOnNewDocument((text) => {
      localStorage.setItem('albert-export-in-danger', text);
    }, marker);
    await page.goto(url);
  },
  reload: () => page.reload().then(() => null),
  /** The same profile in a new tab, as on another day. */
  async visit({ url }) {
    const before = page;
    page = await context.newPage();
    await before.close();
    await visit(url);
  },
  evaluate: ({ code }) => page.evaluate(code),
  async click({ selector }) {
    const found = `document.querySelector(${JSON.stringify(selector)})`;
    await commands.wait({ code: `${found} && !${found}.disabled`, timeout: 20_000 });
    await page.evaluate(`${found}.click()`);
  },
  type: ({ selector, text }) => page.type(selector, text),
  press: ({ key }) => page.keyboard.press(key),
  async wait({ code, timeout }) {
    // Not puppeteer's own wait, which needs the `eval` that the pages forbid.
    const end = Date.now() + timeout;
    // A page that is just being left for another one cannot be asked.
    while (!(await page.evaluate(`Promise.resolve(${code}).then(Boolean)`).catch(() => false))) {
      if (Date.now() > end) throw new Error(`not within ${timeout / 1000} s`);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  },
  emulate: ({ features }) => page.emulateMediaFeatures(features),
  offline: ({ on }) => page.setOfflineMode(on),
  workers: () => page.workers().length,
  screenshot: ({ path }) => page.screenshot({ path, fullPage: true }).then(() => null),
  errors: () => log,
  pid: () => browser.process().pid,
};

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
const lines = createInterface({ input: process.stdin });
lines.on('close', () => browser.close().finally(() => process.exit()));
say({ value: await browser.version() });
for await (const line of lines) {
  const { command, ...given } = JSON.parse(line);
  try {
    say({ value: (await commands[command](given)) ?? null });
  } catch (error) {
    say({ error: String(error.message ?? error) });
  }
}

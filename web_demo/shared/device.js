/**
 * @file What can be told of the device and the browser that this page runs in.
 */

/**
 * @typedef {object} DeviceInfo
 * @property {string} browser as in a record's case: `chrome`, `chromium`, `firefox`, `safari`, …
 * @property {string} engine such as `Chrome 150`
 * @property {string} system
 * @property {string} cpu
 * @property {string} label what to call it until a person says otherwise
 * @property {boolean} phone whether memory is short and heat is near
 * @property {boolean} apple whether it is an iPhone or iPad
 * @property {number | null} memoryBytes coarse; null where the browser does not tell
 */

const HINTS = ['architecture', 'bitness', 'fullVersionList', 'model', 'platformVersion'];

/** @returns {Promise<DeviceInfo>} */
export async function describeDevice() {
  const { userAgent, platform, maxTouchPoints } = navigator;
  const data = /** @type {any} */ (navigator).userAgentData;
  const details = await data
    ?.getHighEntropyValues(HINTS)
    .catch(() => null);
  // An iPad calls itself a Mac, but Macs have no touch screen.
  const apple = /iPhone|iPad|iPod/.test(userAgent) || (/^Mac/.test(platform) && maxTouchPoints > 1);
  const { browser, engine } = describeEngine(
    userAgent,
    details?.fullVersionList ?? data?.brands ?? [],
  );
  const system = describeSystem(userAgent, details, apple);
  const memory = /** @type {any} */ (navigator).deviceMemory;
  const model = details?.model || (apple && /iPad|Mac/.test(userAgent) ? 'iPad' : '');
  return {
    browser,
    engine,
    system: system.slice(0, 200),
    cpu: details?.architecture
      ? `${details.architecture} ${details.bitness ?? ''}`.trim()
      : 'not told by the browser',
    label: `${model || system}, ${engine.replace(/(\d)\.[\d.]*$/, '$1')}`.slice(0, 200),
    phone: apple || (data?.mobile ?? /Android|Mobi/.test(userAgent)),
    apple,
    memoryBytes: memory ? memory * 2 ** 30 : null,
  };
}

/**
 * Brands as browsers tell them, what records call them, and what people do. The names are those
 * of `albert-export bench --browser`.
 *
 * @type {Record<string, [string, string]>}
 */
const BRANDS = {
  'Google Chrome': ['chrome', 'Chrome'],
  HeadlessChrome: ['chrome', 'Chrome'],
  'Microsoft Edge': ['edge', 'Edge'],
  Opera: ['opera', 'Opera'],
  Chromium: ['chromium', 'Chromium'],
};

/**
 * @param {string} userAgent
 * @param {{ brand: string, version: string }[]} brands
 * @returns {{ browser: string, engine: string }}
 */
export function describeEngine(userAgent, brands) {
  for (const [brand, [browser, name]] of Object.entries(BRANDS)) {
    const found = brands.find((told) => told.brand === brand);
    if (found) return { browser, engine: `${name} ${found.version}` };
  }
  /** @type {[RegExp, string, string][]} */
  const patterns = [
    [/Firefox\/([\d.]+)/, 'firefox', 'Firefox'],
    [/FxiOS\/([\d.]+)/, 'safari', 'Firefox for iOS'],
    [/CriOS\/([\d.]+)/, 'safari', 'Chrome for iOS'],
    [/Edg\/([\d.]+)/, 'edge', 'Edge'],
    [/Chromium\/([\d.]+)/, 'chromium', 'Chromium'],
    [/Chrome\/([\d.]+)/, 'chrome', 'Chrome'],
    [/Version\/([\d.]+).*Safari/, 'safari', 'Safari'],
  ];
  for (const [pattern, browser, name] of patterns) {
    const found = pattern.exec(userAgent);
    if (found) return { browser, engine: `${name} ${found[1]}` };
  }
  return { browser: 'unknown', engine: 'unknown browser' };
}

/**
 * @param {string} userAgent
 * @param {{ platformVersion?: string } | null | undefined} details
 * @param {boolean} apple
 * @returns {string}
 */
function describeSystem(userAgent, details, apple) {
  const ios = /OS (\d+[_\d]*) like Mac/.exec(userAgent);
  if (ios) return `iOS ${ios[1].replaceAll('_', '.')}`;
  if (apple) return 'iPadOS';
  const android = /Android ([\d.]+)/.exec(userAgent);
  if (android) return `Android ${details?.platformVersion || android[1]}`;
  const inside = /\(([^)]*)\)/.exec(userAgent)?.[1] ?? '';
  if (/Windows/.test(inside)) return 'Windows';
  if (/Macintosh/.test(inside)) return 'macOS';
  const linux = /Linux [\w.]+/.exec(inside);
  return linux ? linux[0] : inside.split(';')[0] || 'unknown system';
}

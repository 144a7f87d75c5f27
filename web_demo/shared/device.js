/**
 * @file What can be told of the device and the browser that this page runs in.
 */

/**
 * @typedef {object} DeviceInfo
 * @property {string} browser family, as in a record's case: `chromium`, `firefox`, `safari`
 * @property {string} engine such as `Chrome 150`
 * @property {string} system
 * @property {string} cpu
 * @property {string} label what to call it until a person says otherwise
 * @property {boolean} phone whether memory is short and heat is near
 * @property {boolean} apple whether it is an iPhone or iPad
 * @property {number | null} memoryBytes coarse; null where the browser does not tell
 */

/** @returns {Promise<DeviceInfo>} */
export async function describeDevice() {
  const { userAgent, platform, maxTouchPoints } = navigator;
  const data = /** @type {any} */ (navigator).userAgentData;
  const details = await data
    ?.getHighEntropyValues(['architecture', 'bitness', 'model', 'platformVersion'])
    .catch(() => null);
  // An iPad calls itself a Mac, but Macs have no touch screen.
  const apple = /iPhone|iPad|iPod/.test(userAgent) || (/^Mac/.test(platform) && maxTouchPoints > 1);
  const { browser, engine } = describeEngine(userAgent, data?.brands ?? []);
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
    label: `${model || system}, ${engine}`.slice(0, 200),
    phone: apple || (data?.mobile ?? /Android|Mobi/.test(userAgent)),
    apple,
    memoryBytes: memory ? memory * 2 ** 30 : null,
  };
}

/**
 * @param {string} userAgent
 * @param {{ brand: string, version: string }[]} brands
 * @returns {{ browser: string, engine: string }}
 */
export function describeEngine(userAgent, brands) {
  const named = brands.find(({ brand }) => /^(Google Chrome|Microsoft Edge|Opera)$/.test(brand));
  const chromium = brands.find(({ brand }) => brand === 'Chromium');
  const known = named ?? chromium;
  if (known) {
    const name = known.brand.replace(/^(Google|Microsoft) /, '');
    return { browser: 'chromium', engine: `${name} ${known.version}` };
  }
  /** @type {[RegExp, string, string][]} */
  const patterns = [
    [/Firefox\/([\d.]+)/, 'firefox', 'Firefox'],
    [/FxiOS\/([\d.]+)/, 'safari', 'Firefox for iOS'],
    [/CriOS\/([\d.]+)/, 'safari', 'Chrome for iOS'],
    [/Edg\/([\d.]+)/, 'chromium', 'Edge'],
    [/Chrom(?:e|ium)\/([\d.]+)/, 'chromium', 'Chrome'],
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

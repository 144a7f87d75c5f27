/** @file Sentences to pick; every version is timed on the first one. */

export const EXAMPLES = [
  'The film is warm, funny and beautifully acted.',
  'I waited two hours, and then the food was cold.',
  'Great value, and it arrived a day early.',
  'The battery died after a week.',
  'A dull story with no surprises.',
];

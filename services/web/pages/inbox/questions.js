// Questions of runs: their order in the inbox, and how long there is left to answer.

const URGENCY = { high: 0, normal: 1, low: 2 };

/** Least time left first, then those that wait for ever; of equal ones the most urgent, then the newest. @param {any[]} questions */
export function inOrder(questions) {
  const endOf = (question) => (question.expires_at ? new Date(question.expires_at).getTime() : Infinity);
  return [...questions].sort((a, b) => {
    const [endOfA, endOfB] = [endOf(a), endOf(b)];
    if (endOfA !== endOfB) return endOfA < endOfB ? -1 : 1;
    const urgency = (URGENCY[a.priority] ?? 1) - (URGENCY[b.priority] ?? 1);
    if (urgency) return urgency;
    const [left, right] = [a.created_at ?? "", b.created_at ?? ""];
    return left < right ? 1 : left > right ? -1 : 0;
  });
}

/**
 * Milliseconds until a question runs out, and whether that is soon; null when it waits for ever.
 * @param {any} question @param {number} now
 * @returns {{ms: number, isSoon: boolean, hasExpired: boolean} | null}
 */
export function timeLeft(question, now) {
  if (!question.expires_at) return null;
  const ms = new Date(question.expires_at).getTime() - now;
  return { ms: Math.max(0, ms), isSoon: ms < 5 * 60_000, hasExpired: ms <= 0 };
}

/** The question after one that has left, by its place. @param {any[]} questions @param {string} current @param {any[]} before the list that it was in */
export function nextOf(questions, current, before) {
  if (questions.some((one) => one.interrupt_id === current)) return current;
  const at = before.findIndex((one) => one.interrupt_id === current);
  if (at < 0) return questions[0]?.interrupt_id ?? "";
  const later = before.slice(at + 1).find((one) => questions.some((other) => other.interrupt_id === one.interrupt_id));
  return (later ?? questions[questions.length - 1])?.interrupt_id ?? "";
}

// What the availability of a model means, as a colour, an icon and words. No part of the page is needed here.

/** A choice of a tier. @param {any} choice @returns {[string, string, string]} */
export function stateOf(choice) {
  if (choice.selected) return ["good", "circle-check", "taken now"];
  if (choice.available) return ["info", "circle-dot", "available, taken when those before it are not"];
  if (!choice.reachable) return ["bad", "circle-x", "not available: the provider cannot be used or does not answer"];
  if (choice.rate_limited) return ["warn", "clock", "not available: the provider limits the rate of this model"];
  if (choice.stalled) return ["warn", "timer", "not available: its last calls had no answer"];
  return ["bad", "circle-x", "not available: the provider does not list this model"];
}

/** A model of a provider. @param {any} model @param {any} provider @returns {[string, string, string]} */
export function modelState(model, provider) {
  const why = model.reason ? `: ${model.reason}` : "";
  if (provider.excluded) return ["", "circle-slash", "the provider cannot be used here"];
  if (!provider.reachable) return ["bad", "circle-x", "the provider does not answer"];
  if (model.rate_limited) return ["warn", "clock", `the provider limits the rate${why}`];
  if (model.stalled) return ["warn", "timer", `its last calls had no answer${why}`];
  if (!model.listed) return ["bad", "circle-x", `the provider does not list it${why}`];
  return ["good", "circle-check", "available"];
}

// How many experts the rows of a forward meet together. Twin of headstart.theory.mixture.
//
// A routing is {experts, chosen, rho}: E and k of each layer, and how alike neighbours in a text choose.

/** D: distinct experts in a layer that so many neighbours in a text meet. */
export function distinct({ experts, chosen, rho = 0.45 }, rows) {
  const independent = chosen === experts ? rows : 1 + (rows - 1) * (1 - rho);
  return experts * (1 - (1 - chosen / experts) ** independent);
}

/** Bytes of weights that a forward reads, over those that one row reads; share: of these, those of its experts. */
export function reading(routing, rows, share) {
  return 1 - share + (share * distinct(routing, rows)) / routing.chosen;
}

// The chapters, in their order.

export const chapters = [];

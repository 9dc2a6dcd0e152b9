// Charts: lines, a grid of coloured numbers, a histogram, lanes of time. Each is an element with `set`.

export { gantt } from "hs/figures/charts/gantt";
export { heatGrid } from "hs/figures/charts/heat";
export { histogram } from "hs/figures/charts/histogram";
export { lineChart } from "hs/figures/charts/line";

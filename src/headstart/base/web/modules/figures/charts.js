// Charts: lines, lying bars, maps and grids of coloured numbers, a histogram, lanes of time. Those that change have `set`.

export { barChart } from "hs/figures/charts/bars";
export { gantt } from "hs/figures/charts/gantt";
export { heatGrid } from "hs/figures/charts/heat";
export { histogram } from "hs/figures/charts/histogram";
export { lineChart } from "hs/figures/charts/line";
export { colourMap } from "hs/figures/charts/map";

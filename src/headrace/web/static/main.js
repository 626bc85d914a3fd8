// Starts what the page has: live regions, charts, strips, actions, the tail.
import { startLive } from "./live.js";
import { startCharts } from "./charts.js";
import { startStrips } from "./strips.js";
import { startActions } from "./actions.js";
import { startTail } from "./tail.js";
import { startHistory } from "./history.js";

startLive();
startCharts();
startStrips();
startActions();
startTail();
startHistory();

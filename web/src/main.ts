import {setUp} from "./setup";
import {browserTransports} from "./transport";

setUp(browserTransports);

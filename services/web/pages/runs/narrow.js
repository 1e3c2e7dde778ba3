// Whether the window is narrow: lists then show two lines a row instead of columns.
import { useEffect, useState } from "../../ui.js";

const query = matchMedia("(max-width: 760px)");

/** @returns {boolean} */
export function useNarrow() {
  const [isNarrow, setNarrow] = useState(query.matches);
  useEffect(() => {
    const changed = () => setNarrow(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return isNarrow;
}

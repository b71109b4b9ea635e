#include "notice.hpp"

#include <iostream>

namespace mrcfa {

void notice(const std::string& sentence) {
  std::cerr << "mrcfa: " + sentence + "\n";  // in one write, so that threads do not mix
}

}  // namespace mrcfa
